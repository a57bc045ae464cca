// Handwritten files in the safetensors format, good and bad, with what headspan says about each. Shared by
// the tests of the header parser and by anyone who wants to compare another reader with it.
#pragma once

#include <string>
#include <vector>

namespace headspan {

struct SafetensorsSample {
  const char* name;
  std::string file;   // all bytes of the file
  const char* wrong;  // a part of the error message; nullptr: accepted
};

/// Returns a file: the length of `header` in 8 bytes, `header`, and `data_bytes` bytes of data.
std::string safetensors_file(const std::string& header, std::size_t data_bytes);

std::vector<SafetensorsSample> safetensors_samples();

}  // namespace headspan
