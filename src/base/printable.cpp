#include "base/printable.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace headspan {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string line;
  const auto add_code = [&](unsigned byte) {
    char code[5];
    std::snprintf(code, sizeof code, "\\x%02X", byte);
    line += code;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned byte = byte_at(text, i), next = byte_at(text, i + 1);
    if (byte < 0x20 || byte == 0x7F) {
      add_code(byte);
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      add_code(byte);
      add_code(next);
      ++i;
    } else {
      line += text[i];
    }
  }
  return line;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::size_t length = std::min(text.size(), kLongest);
  while (length > 0 && (byte_at(text, length) & 0xC0) == 0x80) --length;
  return escaped(text.substr(0, length)) + (length < text.size() ? "..." : "");
}

std::string printable(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace headspan
