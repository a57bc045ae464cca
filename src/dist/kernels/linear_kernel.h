// Products of a linear layer in FP32, where a batch has many tokens: y = x W^T. Beside BLAS because weights
// in bfloat16 are widened while they are packed instead of in a copy, and because OpenBLAS is 3 to 9 % slower
// on an EPYC with AVX-512, and up to 45 % with two threads on a Xeon. The choice between them is
// linear_product.h's. For few tokens see model/kernels/skinny_gemm.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// x: [tokens, inputs], row-major without gaps; weight: [outputs, inputs] with rows `row` numbers apart. W:
/// float, or std::uint16_t for the bits of bfloat16.
template <class W>
struct LinearOperands {
  const float* x;
  std::int64_t tokens, inputs;
  const W* weight;
  std::int64_t outputs;
  std::int64_t row = inputs;
};

/// Returns the number that is stored: in FP32, or as the bits of bfloat16.
HS_INLINED inline float widened(float x) { return x; }
HS_INLINED inline float widened(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

/// Sets y = x weight^T: [tokens, outputs], row-major. An element has the same bits for any number of threads
/// and whichever tokens are beside it: its terms are added in order, 768 at a time at most. The threads of
/// this process share the work. `lanes`: at most best_lanes(). Throws std::bad_alloc. Local; no MPI.
template <class W>
void multiply_linear(const LinearOperands<W>& operands, float* y, int lanes = best_lanes());

}  // namespace headspan
