// SIGINT, SIGTERM and SIGUSR1 as a wish to stop: Ctrl-C, what Slurm and mpirun send before they kill, and
// what Slurm sends some time before a job's end (--signal). They are only noted; who has long work asks
// between its steps. A second SIGINT ends the process at once.
//
// No handler runs on a thread that computes: oneDNN keeps its stack in a block of the heap while it
// multiplies, and what the kernel puts below it for a handler overwrites the block beside it.
#pragma once

namespace headspan {

/// From now on the signals wait, for one of the two below, also while this process starts its program again
/// (thread_pools.h): LibTorch takes long to load. Before any thread is started.
void hold_stop_signals();

/// Held ones end the process, as those do that come later.
void release_stop_signals();

/// Held ones and later ones are noted instead of ending the process, on a thread of their own: this thread,
/// and those that it starts from now on, do not see them. Once, before MPI starts. Throws std::system_error.
void catch_stop_signals();

/// Whether one of them has come to this process.
bool stop_signal_seen();

}  // namespace headspan
