#include "base/output_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace headspan {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_errno("cannot replace the file", path);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_errno("cannot create the file", path);
}

OutputFile::~OutputFile() { ::close(descriptor_); }

void OutputFile::append(const std::string& text) {
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;
    if (count <= 0) throw_errno("cannot write the file", path_);
    written += static_cast<std::size_t>(count);
  }
}

}  // namespace headspan
