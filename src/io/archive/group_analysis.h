// The coefficients of a group of layers: c B = (x - mean) S in the sense of least squares
// (io/archive/kv_codec.h). For coding they need not be exact: on processors that multiply bytes in one
// instruction columns are rounded to integers first, more finely than steps, and multiplied by the bytes of
// B. Not what becomes of the coefficients (io/archive/group_coder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dist/kernels/byte_product.h"
#include "io/archive/kv_codec.h"

namespace headspan {

class GroupAnalysis {
 public:
  /// The group must outlive it. `bytes`: whether to multiply bytes where that is accurate enough. Throws
  /// InputError if the basis has no inverse. Its maps take 4 D n bytes, and with `bytes` as much again.
  GroupAnalysis(const KvCodec& codec, const CodecGroup& group, bool bytes);

  /// Returns the first `count` coefficients of x: [tokens, count]. x: [tokens, D]. The same bits for any
  /// number of threads, which share the work. Local.
  std::vector<float> exact(const float* x, std::int64_t tokens, std::int64_t count) const;

  /// The same, with errors of a small part of `step`.
  std::vector<float> rounded(const float* x, std::int64_t tokens, std::int64_t count, float step) const;

 private:
  bool multiply_bytes(const float* x, std::int64_t tokens, std::int64_t count, float step,
                      std::vector<float>& coefficients) const;
  void correct(std::int64_t tokens, std::int64_t count, float step, std::vector<float>& coefficients) const;

  const CodecGroup& group_;
  std::int64_t head_size_, columns_, coefficients_;  // d, D, n
  std::vector<float> forward_;                       // [n, D]
  std::optional<ByteMatrix> basis_;                  // B transposed: [D, n]
  std::vector<float> correction_;                    // I - (B B^T)^-1: [n, n]; with basis_
  float correction_size_ = 0;                        // root mean square of its elements
};

}  // namespace headspan
