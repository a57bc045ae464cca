// Files of keys and values as other programs write them: tensors k and v, [layer, head, token, d], of one
// type, in a safetensors file or in HDF5 (float16 and float32 there). Keys are as a cache holds them, after
// the rotary embedding. A file is read and written piece by piece, never as a whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/range.h"
#include "io/archive/element_type.h"
#include "io/stream.h"

namespace headspan {

struct KvShape {
  std::int64_t layers = 0, heads = 0, tokens = 0, head_size = 0;
  ElementType type = ElementType::float16;
};

/// The numbers of a head at consecutive tokens: [tokens, d].
struct KvPiece {
  Stream stream;
  std::int64_t layer, head;
  Range tokens;
};

class KvTensors {
 public:
  /// Opens a file, HDF5 if it begins like one, and checks everything but the numbers. Throws InputError
  /// naming the tensor.
  explicit KvTensors(const std::string& path);

  const std::string& path() const { return path_; }
  const KvShape& shape() const { return shape_; }

  /// Sets `to`: [tokens.size(), heads, d], at these tokens, ascending. Throws InputError if a number is not
  /// finite. Local.
  void read(Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens, float* to) const;

 private:
  void open_safetensors();
  void open_hdf5();

  std::string path_;
  KvShape shape_;
  std::function<void(const KvPiece& piece, float* to)> read_;
};

class KvTensorsWriter {
 public:
  enum class Format { safetensors, hdf5 };

  /// Creates the file and reserves its bytes. bfloat16 is for safetensors only. Throws Error.
  KvTensorsWriter(const std::string& path, const KvShape& shape, Format format);

  /// Writes values: [tokens.size(), heads, d] at these tokens, ascending, in the type of the file. Throws
  /// Error.
  void write(Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens, const float* values);

  /// To be called after everything was written. Throws Error.
  void close();

 private:
  void create_safetensors(const std::string& path);
  void create_hdf5(const std::string& path);

  KvShape shape_;
  std::function<void(const KvPiece& piece, const std::uint8_t* bytes)> write_;
  std::function<void()> close_;
};

}  // namespace headspan
