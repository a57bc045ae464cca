// The command theory: compares Theorem 2.1's bound for random projections with the exact expectation, with
// random draws, and with results of models that have random weights.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Prints the comparison on rank 0 and returns the exit code. Throws AgreedError. Collective over world.
int theory(const Job::Theory& request, const Comm& world, const Log& log);

}  // namespace headspan
