// Loops over the rows of matrices on the CPU, each compiled for several instruction sets of which the best is
// chosen at run time (base/process/cpu_dispatch.h). On pointers, on one thread, without allocation.
#pragma once

#include <cstdint>

#include "model/kernels/quantized_block.h"

namespace headspan {

/// Returns sum of x_i^2, accumulated in float64.
double sum_of_squares(const float* x, std::int64_t count);
double sum_of_squares(const double* x, std::int64_t count);

/// y_i = x_i * factor * gain_i.
void scale_row(const float* x, float factor, const float* gain, std::int64_t count, float* y);
void scale_row(const double* x, double factor, const double* gain, std::int64_t count, double* y);

/// gate_i = silu(gate_i) * up_i with silu(x) = x / (1 + exp(-x)), to a relative 1e-6 for x > -64 and to an
/// absolute 1e-25 below that.
void silu_times(float* gate, const float* up, std::int64_t count);

/// x_i = exp(x_i) / sum exp(x), in float32 to a relative 1e-6 and an absolute 1e-27. Returns log sum exp(x),
/// which is -infinity if `count` is 0 or every x_i is; these become 0.
float softmax_row(float* x, std::int64_t count);
double softmax_row(double* x, std::int64_t count);

/// Columns that are rounded to half steps around zero: the largest level of each, and what a squared error in
/// it costs.
struct HalfSteps {
  const float* largest;
  const float* weights;
  std::int64_t count;
};

/// Returns what it costs to round x to the nearest levels times `gain`, in the type of x.
double weighted_error(const float* x, const HalfSteps& columns, float gain);
double weighted_error(const double* x, const HalfSteps& columns, double gain);

/// codes_i = (x_i - base) * inverse, computed in float64, rounded to the nearest even and clipped to
/// [0, last].
void round_codes(const float* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes);
void round_codes(const double* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes);

/// Converts float16 numbers to float32: those in the lower halves of words (shift = 0) or in the upper ones
/// (shift = 16). Infinity and NaN must not occur.
void expand_halves(const std::uint32_t* words, int shift, std::int64_t count, float* x);

/// x[r, i] = base[r] + code[r, i] * step[r]; rows of x `leading` apart. Up to 7 numbers after a row of x are
/// overwritten.
void expand_codes(const CodedRows& codes, const float* base, const float* step, float* x,
                  std::int64_t leading);
void expand_codes(const CodedRows& codes, const float* base, const float* step, double* x,
                  std::int64_t leading);

/// codes_i = the index of the level that is nearest to x_i * inverse, the upper one of two. levels: [number],
/// ascending, at least 2.
void nearest_levels(const float* x, std::int64_t count, double inverse, const float* levels,
                    std::int64_t number, std::uint32_t* codes);
void nearest_levels(const double* x, std::int64_t count, double inverse, const float* levels,
                    std::int64_t number, std::uint32_t* codes);

/// x_i = levels[x_i] * gain. x: codes; levels: [kMostLevels].
constexpr std::int64_t kMostLevels = 32;
void look_up_levels(const float* levels, float gain, std::int64_t count, float* x);
void look_up_levels(const float* levels, float gain, std::int64_t count, double* x);

/// x_i = base_i + x_i * step_i.
void scale_codes(const float* base, const float* step, std::int64_t count, float* x);
void scale_codes(const float* base, const float* step, std::int64_t count, double* x);

}  // namespace headspan
