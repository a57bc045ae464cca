// What headspan changes in its own process, apart from the signals that it catches (stop_signal.h) and the
// number of its threads (dist/threads.h). src/README.md lists all of it, with the reasons and how to turn it
// off.
#pragma once

namespace headspan {

/// Returns the path that starts this program once more. Usually /proc/self/exe; in a bundle
/// (slurm/bundle.sh), where that is the dynamic loader, the script that HEADSPAN_PROGRAM names.
const char* executable_path();

/// Gives the process the name of its program again, as top and ps show it: after a start through
/// /proc/self/exe it is called "exe", in a bundle like the loader. Call it first in main.
void restore_process_name();

/// Makes glibc keep freed memory in the process, blocks of many megabytes too: each layer of a model needs
/// the same temporaries again, and fresh pages, which fault and are zeroed, would cost a tenth of a forward
/// pass. Call it once, at the start of main. Does nothing with other C libraries.
void disable_heap_trim();

/// Sets OMP_WAIT_POLICY, GOMP_SPINCOUNT and OPENBLAS_THREAD_TIMEOUT unless the user has. Returns whether the
/// program must start again, because OpenMP and OpenBLAS read them when they are loaded. Idle threads of
/// either then sleep after some microseconds. By default they spin on the cores that the other needs next,
/// and a forward pass on two cores takes nearly twice as long. Does nothing with one thread
/// (OMP_NUM_THREADS=1).
bool set_passive_wait();

/// Starts the program again in this process, with the environment as it is now. Returns only if that fails.
/// Call it before MPI starts.
void start_again(char** argv);

/// Ends the process with this exit code once standard output and error are written. The exit handlers of the
/// libraries do not run: those of LibTorch and of the libraries that it loads take a sixth of a second on
/// each rank. Call it last in main, after MPI has ended. With a sanitizer the handlers run, and look for
/// leaks.
[[noreturn]] void end_process(int exit_code);

/// Sets OMPI_MCA_sharedfp=sm and OMPI_MCA_sharedfp_sm_priority=-1 unless the user has set them: Open MPI then
/// makes no shared file pointers, which headspan does not use. It would make one for every file that several
/// ranks open: a named semaphore, which a killed process leaves locked, so that the requeued job waits for it
/// forever; or files beside it, where an error that one rank alone meets lets the others wait forever. Call
/// it before MPI starts.
void disable_shared_file_pointers();

}  // namespace headspan
