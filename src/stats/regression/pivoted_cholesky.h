// The Cholesky factor of a small symmetric matrix with complete pivoting, P^T A P = L L^T. Does what LAPACK's
// dpstrf does, up to three times as fast for the 32 to 640 columns that fits of heads have. Local; no MPI,
// one thread.
#pragma once

#include <cstdint>

namespace headspan {

/// Factors a: [n, n], column-major without gaps, lower triangle valid, in place. Each pivot is the largest
/// remaining diagonal element, the first among equals; stops if that is not above `tolerance`. Returns the
/// rank r: the first r columns hold those of L on and below the diagonal, the rest is undefined. order: [n]
/// receives the order of A's columns. Throws std::bad_alloc.
std::int64_t pivoted_cholesky(std::int64_t n, double* a, double tolerance, int* order);

}  // namespace headspan
