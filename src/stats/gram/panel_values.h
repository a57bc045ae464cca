// The loops over the values of a panel: the only arithmetic on activations outside BLAS. Compiled for several
// instruction sets, of which the loader picks the widest that the processor has; all give the same bits.
#pragma once

#include <cstdint>

#include "base/word_list.h"

namespace headspan {

/// How the product of a panel is formed (design: predict.precision).
///   float64    values and products in FP64
///   float32    values rounded to FP32, products summed in FP32
///   split      values rounded to hi + lo in bfloat16, products in FP64: FP32 sums of 64 tokens and more
///              would err by more than the rounding (measured: 2e-6 in R² where it is 4e-7)
///   bfloat16   values rounded once to bfloat16; their products are exact, summed in FP32
/// Products of split in bfloat16 would be hi hi + hi lo + lo hi + lo lo (without the last, the diagonal of G
/// is too small by 2e-6, and R² off by several times that), and their sums in FP32 no better. GPUs round to
/// more bits, in 8-bit integers, whose sums are exact (device/integer_product.h).
enum class Precision { float64, float32, split, bfloat16 };

inline const WordList<Precision>& precision_words() {
  static const WordList<Precision> words{{"float64", Precision::float64},
                                         {"float32", Precision::float32},
                                         {"split", Precision::split},
                                         {"bfloat16", Precision::bfloat16}};
  return words;
}

/// Whether products are formed in FP64, else in FP32.
inline bool multiplies_doubles(Precision precision) {
  return precision == Precision::float64 || precision == Precision::split;
}

/// out[j] = in[j] - origin[j] as `precision` multiplies it: rounded to nearest, ties to even. FP64 `out` is
/// for those that multiply doubles, FP32 for the others. Where `sums` is not null, also sums[j] += out[j].
void shift_values(const float* in, const double* origin, std::int64_t count, Precision precision, double* out,
                  double* sums);
void shift_values(const double* in, const double* origin, std::int64_t count, Precision precision,
                  double* out, double* sums);
void shift_values(const float* in, const double* origin, std::int64_t count, Precision precision, float* out,
                  double* sums);
void shift_values(const double* in, const double* origin, std::int64_t count, Precision precision, float* out,
                  double* sums);

/// sums[j] += values[j].
void add_values(const double* values, std::int64_t count, double* sums);
void add_values(const float* values, std::int64_t count, double* sums);

}  // namespace headspan
