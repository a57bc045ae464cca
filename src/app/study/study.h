// The study command: every unit of a job computed once, by as many groups of ranks as run.groups says.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the job, or only checks it and prints what it would do (dry_run), and returns the exit code. Rank 0
/// prints the last line of standard output. Throws AgreedError on all ranks for what is wrong with the job as
/// a whole. If one unit fails, the others are computed, and the failure is reported at the end. Collective
/// over world.
int study(const Job& job, const Comm& world, const Log& log, bool dry_run);

}  // namespace headspan
