// OutputFile: a new file, written from beginning to end or at explicit offsets. Whatever had its name before
// is unlinked; a symbolic link is not followed. Not how a file gets its final name (io/outputs/publish.h).
#pragma once

#include <cstdint>
#include <string>

namespace headspan {

class OutputFile {
 public:
  /// Creates the file. Throws Error.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  ///< Closes; errors are ignored.

  void append(const std::string& text);  ///< Throws Error.

  /// Makes the file `bytes` bytes long and reserves them on the disk. Throws Error, also if the disk is full.
  void reserve(std::int64_t bytes);

  /// Writes `count` bytes from byte `offset` on; `append` does not move on. Throws Error.
  void write(std::int64_t offset, const void* bytes, std::int64_t count);

  /// Closes the file, after which it cannot be written. A network file system may say only here that what was
  /// written did not fit. Throws Error.
  void close();

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace headspan
