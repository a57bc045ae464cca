// The command calibrate: finds how the KV cache of a model is best stored, and writes it as a plan.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Returns the exit code. Throws AgreedError. Collective over world.
int calibrate(const Job& job, const Comm& world);

}  // namespace headspan
