// Parser of the header of a file in the safetensors format: a 64-bit little-endian length N, then N bytes of
// JSON that give every tensor's dtype, shape and byte range in the data that follows. Works on bytes in
// memory and opens no file.
//
// It accepts what the reference implementation accepts except for six things that the format does not allow
// or that headspan cannot represent: a field other than dtype, shape and data_offsets; a key given twice;
// `__metadata__` that is null; a tensor written as a list; a dtype written as an object; a dimension above
// 2^63 - 1.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headspan {

/// A tensor of a file. `dtype` is spelled as in the file (F32, BF16, ...); `shape` is empty for a scalar;
/// [begin, end) are its bytes, counted from the start of the data.
struct TensorEntry {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
};

/// Tensors by name. A name may be any UTF-8 text: print it through `printable`, never use it as a path.
using TensorMap = std::map<std::string, TensorEntry>;

/// Returns the bits of an element of a safetensors dtype (F32: 32, F4: 4); 0 for an unknown name.
std::int64_t dtype_bits(std::string_view dtype);

/// Returns N. `start`: at least the first 8 bytes of the file, or all of a shorter one. Throws InputError
/// naming `file` if the file is shorter than 8 bytes, N is above 100 000 000, or 8 + N above `file_size`, so
/// that the caller can allocate N bytes.
std::int64_t safetensors_header_length(const std::string& file, std::string_view start,
                                       std::int64_t file_size);

/// Returns the tensors that the header names. `start`: at least the first 8 + N bytes of the file. Throws
/// InputError naming `file`, the tensor and its field for whatever breaks the format. The data is not looked
/// at.
TensorMap parse_safetensors_header(const std::string& file, std::string_view start, std::int64_t file_size);

}  // namespace headspan
