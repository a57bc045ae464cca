// The file to start for this program once more. In a bundle (slurm/bundle.sh) what runs is the loader, and
// /proc/self/exe names that: there the script in front of it says what to start.
#pragma once

#include <cstdlib>

namespace headspan {

inline const char* own_program() {
  const char* const script = std::getenv("HEADSPAN_PROGRAM");
  return script != nullptr ? script : "/proc/self/exe";
}

}  // namespace headspan
