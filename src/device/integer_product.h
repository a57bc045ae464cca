// Exact products of a panel in integers: Ozaki's scheme on tensor cores for 8-bit integers (Ozaki et al.,
// Numer. Algorithms 59, 2012; Ootomo, Ozaki, Yokota, IJHPCA 38, 2024). Each column of a panel is rounded to
// multiples of its largest value / (127 * 2^16), 23 bits, and split into three digits,
//
//   x / unit = 2^16 a + 2^8 b + c,   -128 <= a, b, c <= 127
//
// whose products are summed in 32 bits without rounding, for each power of two:
//
//   2^32 a a' + 2^24 (a b' + b a') + 2^16 (a c' + b b' + c a') + 2^8 (b c' + c b')
//
// (c c' is below 2^-32 of the largest product and is left out). Used for Precision::split of values in FP32.
// The split into hi + lo has 16 bits, and its error is larger. In a column of n tokens the largest value is
// at most sqrt(n) standard deviations, so that the error of the digits in a panel of 4096 tokens is at most
// that of hi + lo, and far smaller without outliers (measured: R² of a trained model is off by 5e-8, with hi
// + lo by 1e-6 to 2e-6). The same code runs on a GPU and, for tests, in FP64 in host memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace headspan {

/// Columns of a panel as digits. Tokens are padded with zeros to a multiple of 256.
struct IntegerColumns {
  at::Tensor digits;    ///< [columns, 3 tokens] int8: a, b, c of all tokens
  at::Tensor reversed;  ///< [columns, 3 tokens] int8: c, b, a
  at::Tensor unit;      ///< [columns] FP64; 0 for a column of zeros

  /// Returns columns first .. first + count - 1.
  IntegerColumns narrow(std::int64_t first, std::int64_t count) const;
};

/// Splits values: [tokens, D] on any device, at most 32 768 tokens.
IntegerColumns integer_columns(const at::Tensor& values);

/// Adds sums += columns^T rows for m columns and n rows of the same tokens; sums: [m, n] FP64.
void add_integer_product(at::Tensor& sums, const IntegerColumns& columns, const IntegerColumns& rows);

}  // namespace headspan
