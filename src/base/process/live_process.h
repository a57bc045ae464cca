// Identifies a process by a line of text, from which another process can tell whether it still lives. It can
// tell for processes on the same machine in the same container, not for others.
#pragma once

#include <string>

namespace headspan {

/// Returns "HOST PID START BOOT NAMESPACE" for this process. Its start time, the boot of the machine and the
/// namespace of process ids ensure that no other process is mistaken for it.
std::string this_process();

enum class Life { alive, dead, unknown };

/// Returns whether the process for which `this_process` returned this line lives; unknown for any other text.
Life life_of(const std::string& process);

}  // namespace headspan
