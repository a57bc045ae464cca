// The folder that an output stands in.
#pragma once

#include <string>

namespace headspan {

/// The folder of the file at `path`; "." for a bare name.
std::string folder_of(const std::string& path);

/// Makes the folder and those above it; throws Error when that fails or when no file could be made in it. One
/// rank.
void make_folder(const std::string& folder);

}  // namespace headspan
