// The command evaluate: runs a model with a full and a compressed KV cache, and reports what compression
// costs and saves.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the command; returns its exit code. Throws AgreedError. Collective over world.
int evaluate(const Job& job, const Comm& world, const Log& log);

}  // namespace headspan
