// The command evaluate: runs a model with a full and a compressed KV cache, and tells what that costs and
// saves.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Returns the exit code. Throws AgreedError. Collective over world.
int evaluate(const Job& job, const Comm& world);

}  // namespace headspan
