// OutputFile: a new file that is written from beginning to end. Whatever had its name before is unlinked; a
// symbolic link is not followed. Not how a file gets its final name (io/outputs/publish.h).
#pragma once

#include <string>

namespace headspan {

class OutputFile {
 public:
  /// Creates the file. Throws Error.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void append(const std::string& text);  ///< Throws Error.

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace headspan
