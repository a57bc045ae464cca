// The computation of one unit, from its source to its published result.
#pragma once

#include "app/job/job.h"
#include "app/job/unit.h"
#include "app/run/process_layout.h"
#include "app/run/run_clock.h"
#include "base/log.h"

namespace headspan {

/// Computes a unit and publishes its result (and its Grams), unless another run has meanwhile; holds the lock
/// of the result (io/outputs/lock_file.h). Throws AgreedError, or Stopped, on every rank of the group alike.
/// Collective over the team's group.
void run_unit(const Job& job, const Unit& unit, const ProcessLayout& team, RunClock& clock, const Log& log);

}  // namespace headspan
