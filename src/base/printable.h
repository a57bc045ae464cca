// Text from a file made fit for one line of a message: control characters and bytes that are no UTF-8 as
// \xNN, long text cut. Not an escape that anything could read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headspan {

/// Returns `text` with each byte of a control character (U+0000 to U+001F, U+007F to U+009F) and each byte
/// that is no UTF-8 as `\xNN`.
std::string escaped(std::string_view text);

/// The same, beyond 100 bytes cut (never inside a UTF-8 character) and ended by "...".
std::string printable(std::string_view text);

/// A number that is at fault, in six digits: "-5", "1e+39", "nan".
std::string printable(double value);

/// Returns the numbers as "[2, 3]", cut beyond 100 bytes and ended by "...]".
template <class Number>
std::string printable(const std::vector<Number>& numbers) {
  std::string text = "[";
  for (const Number number : numbers) {
    if (text.size() > 100) return text + "...]";
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

}  // namespace headspan
