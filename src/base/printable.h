// Makes text from a file fit for one line of a message: control characters, characters that are not seen and
// invalid UTF-8 become \xNN, long text is cut. Not an encoding that could be read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headspan {

/// Returns `text` with `\xNN` in place of each byte of a control character (U+0000 to U+001F, U+007F to
/// U+009F), of a character that shows nothing or turns the direction of what follows (U+200B, U+200E, U+200F,
/// U+2028 to U+202E, U+2060 to U+2069, U+FEFF), and of invalid UTF-8.
std::string escaped(std::string_view text);

/// Returns escaped(text); text above 100 bytes is cut, never inside a UTF-8 character, and ends in "...".
std::string printable(std::string_view text);

/// Returns `text` as one word of a command that a user may paste into a shell: quoted if it has to be.
std::string shell_word(const std::string& text);

/// Formats an invalid number with six digits: "-5", "1e+39", "nan".
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
