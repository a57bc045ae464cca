// The study command: every unit of a job computed once, by as many groups of ranks as the job asks for.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the job and returns the exit code. Prints the last line of standard output on rank 0. Throws
/// AgreedError on every rank alike for what is wrong with the job as a whole; what is wrong with one unit is
/// told at the end, the others are computed. Collective over world.
int study(const Job& job, const Comm& world);

}  // namespace headspan
