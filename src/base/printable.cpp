#include "base/printable.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace headspan {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

/// Returns the length in bytes of the UTF-8 character that begins at `i`; 0 if none does. Surrogates and code
/// points above U+10FFFF are not characters.
std::size_t character_length(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i), second = byte_at(text, i + 1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  bool is_whole = !is_overlong && !is_no_character;
  for (std::size_t k = 1; k < length; ++k) is_whole = is_whole && (byte_at(text, i + k) & 0xC0) == 0x80;
  return is_whole ? length : 0;
}

/// Returns whether the character at `i` is one of U+0000 to U+001F or U+007F to U+009F.
bool is_control(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && byte_at(text, i + 1) < 0xA0);
}

/// Returns whether the character at `i` shows nothing, ends a line or turns the direction of what follows:
/// one of U+200B, U+200E, U+200F, U+2028 to U+202E, U+2060 to U+2069, and the byte order mark U+FEFF.
bool is_invisible(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i), second = byte_at(text, i + 1), third = byte_at(text, i + 2);
  if (first == 0xEF) return second == 0xBB && third == 0xBF;
  if (first != 0xE2) return false;
  const bool is_mark = third == 0x8B || third == 0x8E || third == 0x8F;
  return second == 0x80 ? is_mark || (third >= 0xA8 && third <= 0xAE)
                        : second == 0x81 && third >= 0xA0 && third <= 0xA9;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string line;
  const auto add_code = [&](unsigned byte) {
    char code[5];
    std::snprintf(code, sizeof code, "\\x%02X", byte);
    line += code;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_length(text, i), end = i + std::max<std::size_t>(length, 1);
    if (length > 0 && !is_control(text, i) && !is_invisible(text, i))
      line += text.substr(i, length);
    else
      for (std::size_t k = i; k < end; ++k) add_code(byte_at(text, k));
    i = end;
  }
  return line;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxBytes = 100;
  std::size_t length = std::min(text.size(), kMaxBytes);
  while (length > 0 && (byte_at(text, length) & 0xC0) == 0x80) --length;
  return escaped(text.substr(0, length)) + (length < text.size() ? "..." : "");
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_-./,:=+@%", c) != nullptr;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string printable(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace headspan
