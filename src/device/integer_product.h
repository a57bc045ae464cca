// Products of a panel in integers, exact: Ozaki's scheme on the units of tensor cores for 8-bit integers
// (Ozaki et al., Numer. Algorithms 59, 2012; Ootomo, Ozaki, Yokota, IJHPCA 38, 2024). Each column of a panel
// is rounded to multiples of its largest value / (127 * 2^16), 23 bits, and cut into three digits,
//
//   x / unit = 2^16 a + 2^8 b + c,   -128 <= a, b, c <= 127
//
// whose products are summed in 32 bits without rounding, and once for each power of two:
//
//   2^32 a a' + 2^24 (a b' + b a') + 2^16 (a c' + b b' + c a') + 2^8 (b c' + c b')
//
// (c c' is below 2^-32 of the largest product). For `split`, of values in FP32: hi + lo, 16 bits, err by
// more. Of a column with n tokens the largest value is at most sqrt(n) deviations, so that the digits of a
// panel of 4096 tokens err by no more than hi + lo do, and by far less where no token stands out (measured:
// R² of a trained model off by 5e-8 where hi + lo are off by 1e-6 to 2e-6). The same code on a GPU and, in
// FP64, in host memory, where it is for tests.
#pragma once

#include <ATen/core/Tensor.h>

namespace headspan {

/// Columns of a panel as digits. Tokens are filled up with zeros to a multiple of 256.
struct IntegerColumns {
  at::Tensor digits;    ///< [columns, 3 tokens] int8: a, b, c of all tokens
  at::Tensor reversed;  ///< [columns, 3 tokens] int8: c, b, a
  at::Tensor unit;      ///< [columns] FP64; 0 for a column of zeros

  IntegerColumns narrow(std::int64_t first, std::int64_t count) const;
};

/// values: [tokens, D] on any device, at most 32 768 tokens.
IntegerColumns integer_columns(const at::Tensor& values);

/// Bytes of the digits of so many values, without what fills up tokens.
constexpr std::int64_t kDigitBytes = 6;

/// sums += columns^T rows for columns: [m], rows: [n] of the same tokens; sums: [m, n] FP64.
void add_integer_product(at::Tensor& sums, const IntegerColumns& columns, const IntegerColumns& rows);

}  // namespace headspan
