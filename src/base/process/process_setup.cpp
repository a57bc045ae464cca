#include "base/process/process_setup.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace headspan {
namespace {

/// Sets an environment variable unless it is set. Returns false if there is no memory for it.
bool set_default(const char* name, const char* value) { return ::setenv(name, value, 0) == 0; }

}  // namespace

const char* executable_path() {
  const char* const script = std::getenv("HEADSPAN_PROGRAM");
  return script != nullptr ? script : "/proc/self/exe";
}

void restore_process_name() { ::prctl(PR_SET_NAME, program_invocation_short_name); }

void disable_heap_trim() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);  // M_MMAP_THRESHOLD is an int: blocks of 2 GiB and more would still be mapped
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

bool set_passive_wait() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string(threads) == "1") return false;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr && std::getenv("OPENBLAS_THREAD_TIMEOUT") != nullptr)
    return false;
  // 2000 spins take a few microseconds, which bridges the gaps between the hundreds of short loops of a
  // decode step. Ten times as many make the step three times as slow if cores are shared. OpenBLAS spins 2^4
  // times, its minimum.
  return set_default("OMP_WAIT_POLICY", "passive") && set_default("GOMP_SPINCOUNT", "2000") &&
         set_default("OPENBLAS_THREAD_TIMEOUT", "4");
}

void start_again(char** argv) { execv(executable_path(), argv); }

#ifdef __SANITIZE_ADDRESS__
// Libraries stay loaded, so that the leak sanitizer can say, and suppress, whose a leak is.
extern "C" int dlclose(void*) { return 0; }
#endif

void end_process(int exit_code) {
#ifdef __SANITIZE_ADDRESS__
  std::exit(exit_code);
#else
  std::fflush(nullptr);
  std::_Exit(exit_code);
#endif
}

// Open MPI must have an implementation, and chooses none whose priority is negative. The choice of `sm` makes
// no file.
void disable_shared_file_pointers() {
  set_default("OMPI_MCA_sharedfp", "sm");
  set_default("OMPI_MCA_sharedfp_sm_priority", "-1");
}

}  // namespace headspan
