// A file in the safetensors format, open for reading. Opening checks everything about the tensors except
// their values (io/checkpoint/safetensors_header.h). Values are returned as the file's bytes (row-major,
// little-endian), not converted. The file is neither mapped into memory nor read as a whole.
#pragma once

#include <cstdint>
#include <string>

#include "base/input_file.h"
#include "io/checkpoint/safetensors_header.h"

namespace headspan {

class SafetensorsFile {
 public:
  /// Opens the file and checks its header. Throws as InputFile and parse_safetensors_header do.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TensorMap& tensors() const { return tensors_; }

  /// Reads `bytes` bytes of `entry`, one of tensors(), from that tensor's byte `offset` on, into `out`; the
  /// range must lie within the tensor. Thread-safe. Throws Error if the file cannot be read or has become
  /// shorter.
  void read(const TensorEntry& entry, std::int64_t offset, std::int64_t bytes, void* out) const;

  /// Returns how many bytes of tensors `read` has returned so far, without the header.
  std::int64_t bytes_read() const { return file_.bytes_read() - data_start_; }

 private:
  SafetensorsFile(InputFile file, std::int64_t data_start, TensorMap tensors);

  InputFile file_;
  std::int64_t data_start_;  // 8 + N; opening reads the bytes before it, each once
  TensorMap tensors_;
};

}  // namespace headspan
