// The inner loops over rows of a matrix on the CPU, each compiled for several instruction sets and chosen at
// run time: the program itself is built for the oldest processor. On pointers, one thread; nothing is
// allocated.
#pragma once

#include <cstdint>

namespace headspan {

/// sum of x_i^2, added up in float64.
double sum_of_squares(const float* x, std::int64_t count);
double sum_of_squares(const double* x, std::int64_t count);

/// y_i = x_i * factor * gain_i.
void scale_row(const float* x, float factor, const float* gain, std::int64_t count, float* y);
void scale_row(const double* x, double factor, const double* gain, std::int64_t count, double* y);

/// gate_i = silu(gate_i) * up_i, silu(x) = x / (1 + exp(-x)), to a relative 1e-6 for x > -64, below that to
/// 1e-25.
void silu_times(float* gate, const float* up, std::int64_t count);

/// x_i = exp(x_i) / sum exp(x), in float32 to a relative 1e-6 and an absolute 1e-27. Returns log sum exp(x):
/// -infinity of no numbers.
float softmax_row(float* x, std::int64_t count);
double softmax_row(double* x, std::int64_t count);

/// codes_i = (x_i - base) * inverse, computed in float64, to the nearest even and clipped to 0 .. last.
void round_codes(const float* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes);
void round_codes(const double* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes);

/// Rows of codes of `bits` bits (2, 3, 4, 5, 6 or 8) laid end to end, the lowest bit first; rows `stride`
/// bytes apart. Up to 7 bytes behind the last code are read.
struct CodedRows {
  const std::uint8_t* codes;
  std::int64_t stride;
  std::int64_t rows;
  int bits;
  std::int64_t count;  ///< of a row
};

/// The float16 numbers in the lower (upper: shift = 16) halves of words; infinity and NaN do not occur.
void expand_halves(const std::uint32_t* words, int shift, std::int64_t count, float* x);

/// x[r, i] = base[r] + code[r, i] * step[r]; rows of x `leading` apart. Up to 7 numbers behind a row of x are
/// overwritten.
void expand_codes(const CodedRows& codes, const float* base, const float* step, float* x,
                  std::int64_t leading);
void expand_codes(const CodedRows& codes, const float* base, const float* step, double* x,
                  std::int64_t leading);

}  // namespace headspan
