// The folder of an output file.
#pragma once

#include <string>

namespace headspan {

/// Returns the folder of the file at `path`; "." for a bare name.
std::string folder_of(const std::string& path);

/// Creates the folder and its parents. Throws Error if that fails or if no file could be created in it.
/// Local.
void make_folder(const std::string& folder);

}  // namespace headspan
