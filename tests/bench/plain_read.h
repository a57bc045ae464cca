// The files of weights of a checkpoint, read from end to end into one small buffer, from disk or from the
// page cache: what loading is compared with. Local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

/// Returns the paths of the .safetensors files in `folder`, sorted.
std::vector<std::string> weight_files(const std::string& folder);

/// Returns bytes. Throws std::filesystem::filesystem_error.
std::int64_t size_of(const std::vector<std::string>& files);

/// Writes the files back and drops them from the page cache. Throws Error.
void drop_from_cache(const std::vector<std::string>& files);

/// Throws Error.
void plain_read(const std::vector<std::string>& files);

}  // namespace headspan
