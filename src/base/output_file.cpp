#include "base/output_file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace headspan {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_errno("cannot replace the file", path);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_errno("cannot create the file", path);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_errno("cannot write the file", path_);
}

void OutputFile::append(const std::string& text) {
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;
    if (count <= 0) throw_errno("cannot write the file", path_);
    written += static_cast<std::size_t>(count);
  }
}

void OutputFile::reserve(std::int64_t bytes) {
  if (const int error = ::posix_fallocate(descriptor_, 0, std::max<std::int64_t>(1, bytes)); error != 0) {
    errno = error;
    throw_errno("cannot reserve " + std::to_string(bytes) + " bytes for the file", path_);
  }
}

void OutputFile::write(std::int64_t offset, const void* bytes, std::int64_t count) {
  for (std::int64_t written = 0; written < count;) {
    const ssize_t done = ::pwrite(descriptor_, static_cast<const char*>(bytes) + written,
                                  static_cast<std::size_t>(count - written), offset + written);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENOSPC;
    if (done <= 0) throw_errno("cannot write the file", path_);
    written += done;
  }
}

}  // namespace headspan
