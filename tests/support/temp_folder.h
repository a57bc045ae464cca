// A fresh folder for the files of one test, removed with all that is in it. Its name holds the process id, so
// that ranks and parallel tests do not meet in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace headspan {

class TempFolder {
 public:
  explicit TempFolder(const std::string& name)
      : path_(testing::TempDir() + "headspan_" + name + "_" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& file) const { return path_ + "/" + file; }

  /// Writes the file and returns its path.
  std::string write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path(file), std::ios::binary) << bytes;
    return path(file);
  }

 private:
  std::string path_;
};

}  // namespace headspan
