// The command calibrate: plans how to store the KV cache of a model in few bytes, and writes the plan.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the command; returns its exit code. Throws AgreedError. Collective over world.
int calibrate(const Job& job, const Comm& world, const Log& log);

}  // namespace headspan
