#include "bench/plain_read.h"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace headspan {
namespace {

int open_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno("cannot open", path);
  return file;
}

}  // namespace

std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::int64_t size_of(const std::vector<std::string>& files) {
  std::int64_t bytes = 0;
  for (const std::string& path : files) bytes += static_cast<std::int64_t>(std::filesystem::file_size(path));
  return bytes;
}

void drop_from_cache(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const int file = open_file(path);
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

void plain_read(const std::vector<std::string>& files) {
  static std::vector<char> buffer(std::size_t{8} << 20);
  for (const std::string& path : files) {
    const int file = open_file(path);
    ssize_t count = 1;
    while (count > 0) count = read(file, buffer.data(), buffer.size());
    close(file);
    if (count < 0) throw_errno("cannot read", path);
  }
}

}  // namespace headspan
