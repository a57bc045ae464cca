#include "base/process/memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process/process_setup.h"

namespace headspan {

double peak_process_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

double idle_process_bytes() {
  posix_spawn_file_actions_t silent;
  posix_spawn_file_actions_init(&silent);
  posix_spawn_file_actions_addopen(&silent, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  char program[] = "headspan", version[] = "--version";
  char* const arguments[] = {program, version, nullptr};
  pid_t child = 0;
  const int failure = posix_spawn(&child, executable_path(), &silent, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&silent);
  int status = 0;
  struct rusage usage {};
  if (failure != 0 || wait4(child, &status, 0, &usage) != child || status != 0)
    throw Error("headspan --version cannot be run to see how much memory that takes");
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

void return_freed_memory() { malloc_trim(0); }

}  // namespace headspan
