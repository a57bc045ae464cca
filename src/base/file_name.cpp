#include "base/file_name.h"

#include <algorithm>

namespace headspan {

bool is_file_name(std::string_view name) {
  constexpr std::size_t kLongest = 160;
  return !name.empty() && name.size() <= kLongest && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && !has_control_characters(name);
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

}  // namespace headspan
