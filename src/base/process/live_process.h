// A process by a line of text that others can read, and whether it still lives, as far as one can tell from
// here: processes of this machine and of the same container are asked for, those of others are not known.
#pragma once

#include <string>

namespace headspan {

/// "HOST PID START BOOT NAMESPACE" of this process: with when it was started, on which boot of the machine
/// and in which space of process ids, so that no other process is taken for it.
std::string this_process();

enum class Life { alive, dead, unknown };

/// Of the process that `this_process` gave this line for; unknown for any other text.
Life life_of(const std::string& process);

}  // namespace headspan
