// Integer arithmetic that throws instead of overflowing: for sizes that come from files, and for the 32-bit
// integers of MPI, BLAS and HDF5. Sizes inside headspan are std::int64_t; only `to_int` narrows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"

namespace headspan {

/// Returns a * b for non-negative a and b. Throws Error naming `what` when the product does not fit in 63
/// bits.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
    throw Error(std::string(what) + ": " + std::to_string(a) + " * " + std::to_string(b) + " overflows");
  return product;
}

/// Returns a + b for non-negative a and b. Throws Error naming `what` when the sum does not fit in 63 bits.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t sum = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
    throw Error(std::string(what) + ": " + std::to_string(a) + " + " + std::to_string(b) + " overflows");
  return sum;
}

/// Narrows to the `int` of MPI and BLAS. Throws Error when it does not fit.
inline int to_int(std::int64_t value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    throw Error("a size of " + std::to_string(value) +
                " does not fit in the 32-bit integers of MPI and BLAS");
  return static_cast<int>(value);
}

/// Converts a non-negative index or size for the standard library.
inline std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace headspan
