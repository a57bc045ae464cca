// What the run of one unit carries: what is asked, who computes it, when it saves and stops, and where it
// reports. Nothing of what it computes.
#pragma once

#include "app/job/unit.h"
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
  const LockFile* lock;  ///< of the unit's result, on the root of the group
};

}  // namespace headspan
