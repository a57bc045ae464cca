#include "base/printable.h"

#include <algorithm>
#include <cstdio>

namespace headspan {

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  const auto is_continuation = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  std::size_t length = std::min(text.size(), kLongest);
  while (length > 0 && length < text.size() && is_continuation(length)) --length;

  std::string line;
  for (const char character : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte != 0x7F) {
      line += character;
      continue;
    }
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02X", static_cast<unsigned>(byte));
    line += escaped;
  }
  return length < text.size() ? line + "..." : line;
}

}  // namespace headspan
