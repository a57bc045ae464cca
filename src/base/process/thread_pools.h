// How the thread pools of one process share its cores. Not how many threads there are (dist/threads.h).
#pragma once

namespace headspan {

/// OpenMP and OpenBLAS each keep threads, which spin for a while when their work is done: on the cores that
/// the other pool needs next, so that a forward pass on two cores took nearly twice as long. How long they
/// spin they read from the environment when they are loaded; so this sets OMP_WAIT_POLICY, GOMP_SPINCOUNT (an
/// OpenMP thread waits for some microseconds: a decode step has hundreds of short loops) and
/// OPENBLAS_THREAD_TIMEOUT where the user has not, and starts the program again in this same process. Returns
/// when nothing is to be set, with one thread (OMP_NUM_THREADS=1), or when it could not be done. Call before
/// MPI starts.
void let_idle_threads_sleep(char** argv);

}  // namespace headspan
