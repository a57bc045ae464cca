// Products of a few rows with stored columns of few bits, in place. Codes are multiplied by 16-bit integers,
// of which a processor multiplies twice as many at a time as float32 numbers. On pointers, on one thread,
// compiled for several instruction sets (base/process/cpu_dispatch.h).
//
// The other factor is rounded to multiples of 1 / 32767 of its largest magnitude, which is that of a row of
// x, or of w[m, t] * step[t] over the tokens of one call. Within a call integers are summed, exactly. The
// rounding changes a sum by less than a ten-thousandth of its terms; quantisation to 8 bits has already
// changed each term by some thousandths.
//
// `on_bytes` says whether codes are unpacked to bytes, with instructions that has_vbmi() is about, or to
// 16-bit integers; the sums of integers are the same.
#pragma once

#include <cstdint>
#include <vector>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/quantized_block.h"

namespace headspan {

/// A matrix x: [rows, columns] of float32 as factor[m] * integer. A word holds two neighbouring columns, or,
/// if on_bytes(), one byte of each of four: for each row the words of the upper bytes of the integers plus
/// 2^15 and, low() words after them, those of the lower ones.
class IntegerRows {
 public:
  IntegerRows() = default;
  IntegerRows(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns,
              bool on_bytes = has_vbmi());

  /// Replaces the matrix; reuses the memory if it is large enough.
  void assign(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns,
              bool on_bytes = has_vbmi());

  std::int64_t rows() const { return static_cast<std::int64_t>(factors_.size()); }
  const std::uint32_t* words(std::int64_t row) const { return words_.data() + row * leading_; }
  std::int64_t low() const { return leading_ / 2; }
  bool on_bytes() const { return on_bytes_; }
  float factor(std::int64_t row) const { return factors_[static_cast<std::size_t>(row)]; }
  float sum(std::int64_t row) const { return sums_[static_cast<std::size_t>(row)]; }  ///< of the row of x

 private:
  std::int64_t leading_ = 0;  // words per row, a whole number of vectors; zero after the last column
  std::vector<std::uint32_t> words_, pairs_;  // pairs_: of one row, before it is split
  bool on_bytes_ = false;
  std::vector<float> factors_, sums_;
};

/// y[m, t] += sum_c x[m, c] z[t, c]. y: [rows, tokens], rows y_leading elements apart.
void quantized_gemm_transposed(const IntegerRows& x, const QuantizedBlock& z, float* y,
                               std::int64_t y_leading);

/// y[m, c] += sum_t w[m, t] z[t, c]. w: [rows, tokens], y: [rows, codes.count].
void quantized_gemm(const float* w, std::int64_t w_leading, std::int64_t rows, const QuantizedBlock& z,
                    float* y, std::int64_t y_leading, bool on_bytes = has_vbmi());

}  // namespace headspan
