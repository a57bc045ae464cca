// The command plan: what a study would cost on a given number of ranks, and whether it would fit. Runs
// nothing.
#pragma once

#include <string>

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

struct PlanRequest {
  std::int64_t ranks = 1;
  std::string rates;  ///< a file of `key = value`; empty: defaults
  bool json = false;  ///< print JSON in place of lines
};

/// Prints the plan on rank 0 and returns the exit code. Needs config.json of the checkpoints but not the
/// weights; without a token file it assumes tokens.limit tokens in full sequences. Throws AgreedError with
/// exit code 2 if the plan does not fit the run.memory_gib given, or if the ranks cannot be divided.
/// Collective over world.
int plan(const Job& job, const PlanRequest& request, const Comm& world, const Log& log);

}  // namespace headspan
