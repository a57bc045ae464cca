// The file to start for this program once more, and the name of its process. In a bundle (slurm/bundle.sh)
// what runs is the loader, and /proc/self/exe names that: there the script in front of it says what to start.
#pragma once

#include <cerrno>
#include <cstdlib>

#include <sys/prctl.h>

namespace headspan {

inline const char* own_program() {
  const char* const script = std::getenv("HEADSPAN_PROGRAM");
  return script != nullptr ? script : "/proc/self/exe";
}

/// Names the process after its program again, as top and ps show it: what was started through /proc/self/exe
/// is called "exe", in a bundle as the loader is. First in main.
inline void take_own_name() { ::prctl(PR_SET_NAME, program_invocation_short_name); }

}  // namespace headspan
