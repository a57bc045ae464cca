// The command plan: what a study would cost on a given number of ranks, and whether it fits, without running
// it.
#pragma once

#include <optional>
#include <string>

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

struct PlanRequest {
  std::int64_t ranks = 1;
  std::string rates;  ///< a file of `key = value`; empty: defaults
};

/// Prints its answer on rank 0; returns the exit code. Needs config.json of the checkpoints, not the weights;
/// where the token file is missing it assumes tokens.limit tokens in full sequences. AgreedError with exit
/// code 2 where run.memory_gib is given and the plan does not fit, or the ranks do not divide. Collective
/// over world.
int plan(const Job& job, const PlanRequest& request, const Comm& world);

}  // namespace headspan
