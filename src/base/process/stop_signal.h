// SIGINT, SIGTERM and SIGUSR1 as requests to stop: Ctrl-C, what Slurm and mpirun send before they kill, and
// what Slurm sends some time before a job's end (--signal). They are only recorded; long work asks between
// its steps. A second SIGINT ends the process at once.
//
// No handler runs on a thread that computes: while oneDNN multiplies it keeps its stack in a block of the
// heap, and the frame that the kernel puts below it for a handler overwrites the neighbouring block.
#pragma once

namespace headspan {

/// Blocks the signals until one of the two functions below is called, also while this process starts its
/// program again (process_setup.h), because LibTorch takes long to load. Call it before any thread starts.
void hold_stop_signals();

/// Lets the signals end the process, also those that came while they were blocked.
void release_stop_signals();

/// Records the signals, also those that came while they were blocked, on a thread of its own, instead of
/// letting them end the process. The calling thread and those that it starts later do not see them. Call it
/// once, before MPI starts. Throws std::system_error.
void catch_stop_signals();

/// Returns whether this process has received one of them.
bool stop_signal_seen();

}  // namespace headspan
