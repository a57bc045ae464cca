// What every step of the run of one unit needs: the job, the ranks, when to save and stop, and where to
// report. Holds nothing that is computed.
#pragma once

#include "app/job/unit.h"
#include "app/run/input_watch.h"
#include "app/run/process_layout.h"
#include "app/run/run_clock.h"
#include "base/log.h"
#include "base/profile.h"
#include "io/outputs/lock_file.h"

namespace headspan {

struct UnitRun {
  const Job& job;
  const Unit& unit;
  const ProcessLayout& processes;
  RunClock& clock;
  const Log& log;
  Profile& profile;
  const LockFile* lock;      ///< of the unit's result, on the root of the group
  const InputWatch& inputs;  ///< of the job and the unit, on the root of the group
};

}  // namespace headspan
