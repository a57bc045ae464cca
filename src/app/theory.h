// The command theory: what Theorem 2.1 of the paper says of random projections beside what is exactly true,
// what draws give, and what models with random weights measured.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Prints its answer on rank 0; returns the exit code. Throws InputError through AgreedError. Collective over
/// world.
int theory(const Job::Theory& request, const Comm& world);

}  // namespace headspan
