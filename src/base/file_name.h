// What results may be called: a name that users give and that becomes a file's or a folder's.
#pragma once

#include <string_view>

namespace headspan {

/// What is_file_name asks for, for messages.
constexpr const char* kFileNameRule =
    "1 to 160 bytes of UTF-8 without '/' and control characters, not . or ..";

/// Whether a file or folder can be called `name`, with the suffixes of results and a job's id after it (file
/// systems allow 255 bytes).
bool is_file_name(std::string_view name);

}  // namespace headspan
