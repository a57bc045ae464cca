#include "base/file_name.h"

#include "base/printable.h"

namespace headspan {

bool is_file_name(std::string_view name) {
  constexpr std::size_t kMaxBytes = 160;
  return !name.empty() && name.size() <= kMaxBytes && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && escaped(name) == name;
}

}  // namespace headspan
