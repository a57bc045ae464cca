// The header of a file in the safetensors format, as a pure function of bytes: a 64-bit little-endian length
// N, then N bytes of JSON that give every tensor's dtype, shape and place in the data behind them. Nothing
// here opens a file.
//
// Accepted is what the reference implementation accepts, less six things that the format's text does not
// allow or that headspan cannot hold: a field beside dtype, shape and data_offsets; a key given twice;
// `__metadata__` that is null; a tensor written as a list; a dtype written as an object; a dimension above
// 2^63 - 1.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headspan {

/// One tensor of a file. `dtype` as the file spells it (F32, BF16, ...); `shape` is empty for a scalar; its
/// bytes are [begin, end) counted from the start of the data.
struct TensorEntry {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
};

/// Tensors by name. A name is any UTF-8 text: show it through `printable`, never use it as a path.
using TensorMap = std::map<std::string, TensorEntry>;

/// Bits of one element of a safetensors dtype (F32: 32, F4: 4); 0 for a name that the format does not know.
std::int64_t dtype_bits(std::string_view dtype);

/// N, from `start`: the first 8 bytes of the file at least, or all of a shorter one. Allocates nothing that N
/// says. Throws InputError naming `file` when the file is shorter than 8 bytes, N above 100 000 000, or 8 + N
/// above `file_size`.
std::int64_t safetensors_header_length(const std::string& file, std::string_view start,
                                       std::int64_t file_size);

/// The tensors that the header names, from `start`: the first 8 + N bytes of the file at least. The data
/// itself is not looked at. Throws InputError naming `file`, the tensor and its field for whatever breaks the
/// format.
TensorMap parse_safetensors_header(const std::string& file, std::string_view start, std::int64_t file_size);

}  // namespace headspan
