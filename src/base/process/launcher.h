// What a launcher (mpirun, srun) tells the processes that it starts, in their environment: known before MPI
// starts, and also if the launcher belongs to another MPI, whose processes MPI does not join.
#pragma once

namespace headspan {

/// Returns the rank that a launcher gave this process; null if no launcher started it.
const char* launched_rank();

/// Returns how many processes the launcher started with this one; 1 if none did, or if it does not say.
long launched_processes();

}  // namespace headspan
