// Products of blocks that a core's caches hold, of one head by another or of a factor's columns. By a kernel
// of our own, which takes the operands as they lie: BLAS spends as long on a call and on packing [32, 32] as
// on the product. Not for larger matrices, whose columns would be fetched again for every tile. Local; no
// MPI, one thread.
#pragma once

#include <cstdint>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// c -= a b^T. a: [m, k], b: [n, k], c: [m, n], all column-major, a and b without gaps. Each element is
/// summed over k in its order.
void subtract_block_product(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                            double* c, std::int64_t ldc, int lanes = best_lanes());

/// c -= a a^T at and below the diagonal, and at some elements above it. a: [m, k], c: [m, m].
void subtract_block_square(std::int64_t m, std::int64_t k, const double* a, double* c, std::int64_t ldc,
                           int lanes = best_lanes());

}  // namespace headspan
