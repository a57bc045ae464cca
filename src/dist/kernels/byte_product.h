// Products of 16-bit integers with a matrix of bytes, exact: several times as fast as in FP32 on processors
// with AVX-512 VNNI. Not a choice: elsewhere multiply_linear (dist/kernels/linear_kernel.h) is faster.
#pragma once

#include <cstdint>

#include "dist/matrix/large_array.h"

namespace headspan {

/// Whether this processor multiplies bytes in one instruction.
bool has_byte_products();

class ByteMatrix {
 public:
  /// values: [terms, outputs], row-major. Throws std::bad_alloc.
  ByteMatrix(const std::int8_t* values, std::int64_t terms, std::int64_t outputs);

  /// The shape of a product: of the matrix the first `terms` rows and the first `outputs` columns are taken.
  struct Shape {
    std::int64_t tokens, terms, outputs;
  };

  /// Sets y[t, k] to the sum of x[t, i] B[i, k] over i < terms: [tokens, outputs]. x: [tokens, terms], at
  /// most kLargest in size; numbers up to 127 take half the time if those of neighbouring terms and tokens
  /// are as small. Sums are exact if they fit 32 bits, whatever they reach on the way. `fused`: as
  /// has_byte_products(), or not. Throws std::bad_alloc. One thread; local.
  void multiply(const std::int16_t* x, const Shape& shape, std::int32_t* y,
                bool fused = has_byte_products()) const;

  static constexpr int kLargest = 127 * 256 + 127;

 private:
  std::int64_t terms_;
  LargeArray<std::uint8_t> panels_;  // of kTileRowStep outputs: [terms / 4][kTileRowStep][4], each plus 128
};

}  // namespace headspan
