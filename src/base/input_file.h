// InputFile: a regular file that is read at explicit offsets with pread: no shared position, no buffer, no
// memory map. It remains the file that was opened, even if its name is later given to another one. Several
// threads may read at once. Errors that may pass (EIO, ESTALE, EAGAIN, ETIMEDOUT) are tried again for two
// seconds, and a notice on stderr says so; what remains is thrown.
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

  /// Size in bytes when the file was opened.
  std::int64_t size() const { return size_; }

  /// Reads exactly `bytes` bytes, starting at byte `offset`, into `out`. The range must lie within size().
  /// Throws Error if the system fails or the file has become shorter since it was opened.
  void read(std::int64_t offset, std::int64_t bytes, void* out) const;

  /// Bytes that `read` has returned so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  mutable std::atomic<std::int64_t> bytes_read_{0};
};

/// Reads a whole file. Throws as InputFile does.
std::string read_whole_file(const std::string& path);

/// Reads a whole text file that a person or a tool wrote, without the byte order mark that editors of Windows
/// put in front. Throws as InputFile does, and InputError if the file is larger than 100 MB.
std::string read_small_file(const std::string& path);

}  // namespace headspan
