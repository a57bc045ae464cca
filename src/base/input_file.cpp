#include "base/input_file.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

constexpr std::chrono::milliseconds kPauses[] = {
    std::chrono::milliseconds{100}, std::chrono::milliseconds{400}, std::chrono::milliseconds{1500}};

/// Returns whether an error of the storage may be gone a second later, as where a file server starts again.
bool may_pass(int code) { return code == EIO || code == ESTALE || code == EAGAIN || code == ETIMEDOUT; }

/// Makes a system call, which returns a negative number and sets errno where it fails; again after each pause
/// while the error may pass. Says so once, as `what`.
template <class Call>
auto persist(const std::string& what, const std::string& path, const Call& call) {
  bool told = false;
  for (const auto pause : kPauses) {
    const auto result = call();
    if (result >= 0 || !may_pass(errno)) return result;
    if (!std::exchange(told, true))
      std::fprintf(stderr, "headspan: notice: %s: %s: %s: tries again for 2 s\n", what.c_str(),
                   escaped(path).c_str(), std::strerror(errno));
    std::this_thread::sleep_for(pause);
  }
  return call();
}

int open_descriptor(const std::string& path) {
  const int descriptor = persist("cannot open", path, [&] {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a FIFO would wait
  });
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
  if (persist("cannot read the size of", path, [&] { return ::fstat(descriptor_, &status); }) != 0) {
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
    const ssize_t got = persist("cannot read", path_, [&] {
      return ::pread(descriptor_, static_cast<char*>(out) + done, static_cast<std::size_t>(bytes - done),
                     offset + done);
    });
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
  std::string text = contents(file);
  if (text.rfind("\xEF\xBB\xBF", 0) == 0) text.erase(0, 3);
  return text;
}

}  // namespace headspan
