// A regular file that is read at explicit places with pread: no shared position, no buffer, no memory map. It
// stays the file that was opened even if its name is given to another one. Reading is safe from several
// threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace headspan {

class InputFile {
 public:
  /// Opens `path` read-only; symbolic links are followed. Throws InputError when it is missing, not readable
  /// by the user or not a regular file, Error on any other failure.
  explicit InputFile(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }

  /// Bytes in the file when it was opened.
  std::int64_t size() const { return size_; }

  /// Reads exactly `bytes` bytes from byte `offset` on into `out`; the caller keeps the range within size().
  /// Throws Error when the system fails or when the file has become shorter since it was opened.
  void read(std::int64_t offset, std::int64_t bytes, void* out) const;

  /// Bytes given out by `read` so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  mutable std::atomic<std::int64_t> bytes_read_{0};
};

/// The whole of a file. Throws as InputFile does.
std::string read_whole_file(const std::string& path);

/// The whole of a small file: a text that a person or a tool wrote. Throws as InputFile does, and InputError
/// when the file is above 100 MB.
std::string read_small_file(const std::string& path);

}  // namespace headspan
