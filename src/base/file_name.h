// The names that users may give to results, which become names of files and folders.
#pragma once

#include <string_view>

namespace headspan {

/// The rule of is_file_name, as messages state it.
constexpr const char* kFileNameRule =
    "1 to 160 bytes of UTF-8 without '/' and control characters, not . or ..";

/// Returns whether a file or folder can be called `name`, with the suffix of a result and a job id appended
/// (file systems allow 255 bytes).
bool is_file_name(std::string_view name);

}  // namespace headspan
