// One file in the safetensors format, open for reading. Everything about a tensor is checked when the file is
// opened (io/checkpoint/safetensors_header.h); its values are given out as the file's own bytes (C order,
// little-endian): what they mean is for the caller. Never mapped into memory, never read as a whole.
#pragma once

#include <cstdint>
#include <string>

#include "base/input_file.h"
#include "io/checkpoint/safetensors_header.h"

namespace headspan {

class SafetensorsFile {
 public:
  /// Opens the file and checks its whole header. Throws as InputFile and parse_safetensors_header do.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TensorMap& tensors() const { return tensors_; }

  /// Reads `bytes` bytes of `entry`, one of tensors(), from that tensor's byte `byte_offset` on. The caller
  /// keeps the range within the tensor. Safe from several threads. Throws Error when the file cannot be read
  /// or has become shorter.
  void read(const TensorEntry& entry, std::int64_t byte_offset, std::int64_t bytes, void* out) const;

  /// Bytes of tensors given out by `read` so far; the header is not counted.
  std::int64_t bytes_read() const { return file_.bytes_read() - data_start_; }

 private:
  SafetensorsFile(InputFile file, std::int64_t data_start, TensorMap tensors);

  InputFile file_;
  std::int64_t data_start_;  // 8 + N: what opening reads, each byte once
  TensorMap tensors_;
};

}  // namespace headspan
