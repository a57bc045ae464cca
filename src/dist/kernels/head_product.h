// Products of rows with a block diagonal matrix, in FP32: each head of a row by its own small square block.
// Beside multiply_linear (dist/kernels/linear_kernel.h), which packs both operands, for that takes longer
// than so small a product.
#pragma once

#include <cstdint>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// Rows of heads, [tokens, heads, d], and a block for each head, [heads, d, d], without gaps.
struct HeadOperands {
  const float* x;
  std::int64_t tokens, heads, d;
  const float* blocks;
};

/// Sets y[t, h] to x[t, h] B[h]: [tokens, heads, d]. The terms of each sum are added in order, so that an
/// element has the same bits for any number of threads and whichever tokens are beside it. The threads of
/// this process share the heads. `lanes`: at most best_lanes(). Local; no MPI.
void multiply_heads(const HeadOperands& operands, float* y, int lanes = best_lanes());

}  // namespace headspan
