// Handcrafted files in the safetensors format, good and bad, with what headspan says to each: one row a
// sample. Shared by the tests of the header parser and by whoever wants to hold another reader against them.
#pragma once

#include <string>
#include <vector>

namespace headspan {

struct SafetensorsSample {
  const char* name;
  std::string file;   // all bytes of the file
  const char* wrong;  // a fragment of the refusal; nullptr: accepted
};

/// A file: the length of `header` in 8 bytes, `header`, and `data_bytes` bytes of data.
std::string safetensors_file(const std::string& header, std::size_t data_bytes);

std::vector<SafetensorsSample> safetensors_samples();

}  // namespace headspan
