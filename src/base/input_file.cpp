#include "base/input_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace headspan {
namespace {

int open_descriptor(const std::string& path) {
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a FIFO would wait
  if (descriptor >= 0) return descriptor;
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == EACCES || code == ELOOP || code == ENAMETOOLONG ||
      code == ENXIO)
    throw InputError(path, "", "", std::string("cannot be opened: ") + std::strerror(code),
                     "give the path of a readable file");
  throw_errno("cannot open", path);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open_descriptor(path)) {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    ::close(descriptor_);
    throw_errno("cannot read the size of", path);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw InputError(path, "", "", S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file",
                     "give the path of a file");
  }
  size_ = status.st_size;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      bytes_read_(other.bytes_read_.load()) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  bytes_read_ = other.bytes_read_.exchange(bytes_read_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  HS_ASSERT(offset >= 0 && bytes >= 0 && offset <= size_ && bytes <= size_ - offset);
  std::int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(descriptor_, static_cast<char*>(out) + done,
                                static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot read", path_);
    if (got == 0)
      throw Error("cannot read: " + path_ + ": it ends at byte " + std::to_string(offset + done) +
                  " but had " + std::to_string(size_) + " bytes when it was opened: something shortened it");
    done += got;
  }
  bytes_read_ += bytes;
}

namespace {

std::string contents(const InputFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, file.size(), text.data());
  return text;
}

}  // namespace

std::string read_whole_file(const std::string& path) { return contents(InputFile(path)); }

std::string read_small_file(const std::string& path) {
  constexpr std::int64_t kMaxBytes = 100'000'000;
  const InputFile file(path);
  if (file.size() > kMaxBytes)
    throw InputError(path, "file size", std::to_string(file.size()), "is above " + std::to_string(kMaxBytes),
                     "is it the file that was meant?");
  return contents(file);
}

}  // namespace headspan
