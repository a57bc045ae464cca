// Keys or values of a group of layers from their coefficients: x = c B S^-1 + mean (io/archive/kv_codec.h).
// On processors that multiply bytes in one instruction coefficients are rounded to integers first, more
// finely than steps, and multiplied by the bytes of B; elsewhere in FP32. Not decoding
// (io/archive/group_coder.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dist/kernels/byte_product.h"
#include "io/archive/kv_codec.h"

namespace headspan {

class GroupSynthesis {
 public:
  /// The group must outlive it. `bytes`: whether to multiply bytes. Its maps take D n bytes, or 4 D n.
  GroupSynthesis(const KvCodec& codec, const CodecGroup& group, bool bytes);

  /// Sets x: [tokens, D]. coefficients: [tokens, count], the first of each token, the others are 0. An error
  /// of `step` / 32 in each counts for nothing. The threads of this process share the work. Local.
  void run(std::vector<float> coefficients, std::int64_t tokens, std::int64_t count, float step,
           float* x) const;

 private:
  void multiply_bytes(std::vector<float> coefficients, std::int64_t tokens, std::int64_t count, float step,
                      float* x) const;

  const CodecGroup& group_;
  std::int64_t head_size_, columns_, coefficients_;  // d, D, n
  std::optional<ByteMatrix> basis_;                  // [n, D]
  std::vector<float> backward_;                      // B S^-1, transposed: [D, n]; without basis_
};

}  // namespace headspan
