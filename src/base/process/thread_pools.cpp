#include "base/process/thread_pools.h"

#include <cstdlib>
#include <string>

#include <unistd.h>

#include "base/process/own_program.h"

namespace headspan {

void let_idle_threads_sleep(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string(threads) == "1") return;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr && std::getenv("OPENBLAS_THREAD_TIMEOUT") != nullptr) return;
  constexpr int kKeep = 0;
  if (setenv("OMP_WAIT_POLICY", "passive", kKeep) != 0) return;
  // Some microseconds. Ten times as many make a decode step three times as slow where a core is shared.
  if (setenv("GOMP_SPINCOUNT", "2000", kKeep) != 0) return;
  if (setenv("OPENBLAS_THREAD_TIMEOUT", "4", kKeep) != 0) return;  // 2^4 turns, the least
  execv(own_program(), argv);
}

}  // namespace headspan
