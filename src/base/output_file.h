// A file that is written from its beginning on: created anew, whatever its name led to before. What stands
// there is unlinked, a symbolic link is not followed. Not how a file comes to its final name
// (io/outputs/publish.h).
#pragma once

#include <string>

namespace headspan {

class OutputFile {
 public:
  /// Throws Error, as the others do.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void append(const std::string& text);

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace headspan
