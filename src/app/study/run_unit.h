// The computation of one unit, from its source to its published result.
#pragma once

#include "app/job/job.h"
#include "app/job/unit.h"
#include "app/run/input_watch.h"
#include "app/run/process_layout.h"
#include "app/run/run_clock.h"
#include "base/log.h"

namespace headspan {

/// Computes a unit and publishes its result (and its Grams), unless another run has published it meanwhile.
/// Holds the lock of the result (io/outputs/lock_file.h). Fails if the checkpoint or one of `inputs`, the
/// job's other files, was changed meanwhile. Throws AgreedError or Stopped on all ranks of the group.
/// Collective over the group.
void run_unit(const Job& job, const Unit& unit, const InputWatch& inputs, const ProcessLayout& processes,
              RunClock& clock, const Log& log);

}  // namespace headspan
