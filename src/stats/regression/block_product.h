// Products of blocks that fit a core's caches: of one head by another, or of a factor's columns. The kernel
// reads the operands in place, because BLAS spends as long on the call and on packing [32, 32] as on the
// product. Not for larger matrices, whose columns would be fetched again for every tile. Local; no MPI, one
// thread.
#pragma once

#include <cstdint>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// Subtracts c -= a b^T. a: [m, k], b: [n, k], c: [m, n], all column-major, a and b without gaps. Each
/// element is summed over k in order. `lanes`: at most best_lanes().
void subtract_block_product(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                            double* c, std::int64_t ldc, int lanes = best_lanes());

/// Subtracts c -= a a^T on and below the diagonal, and at undefined elements above it. a: [m, k], c: [m, m].
void subtract_block_square(std::int64_t m, std::int64_t k, const double* a, double* c, std::int64_t ldc,
                           int lanes = best_lanes());

}  // namespace headspan
