// Text from a file made fit for one line of a message: control characters as \xNN, long text cut. Not an
// escape that anything could read back.
#pragma once

#include <string>
#include <string_view>

namespace headspan {

/// `text` with every control character, Unicode's second set among them, as `\xNN`.
std::string escaped(std::string_view text);

/// The same, beyond 100 bytes cut (never inside a UTF-8 character) and ended by "...".
std::string printable(std::string_view text);

}  // namespace headspan
