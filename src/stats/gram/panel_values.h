// The loops over the values of a panel: the only arithmetic on activations outside products. Compiled for
// several instruction sets (base/process/cpu_dispatch.h), which all give the same bits.
#pragma once

#include <cstdint>

#include "base/word_list.h"

namespace headspan {

/// How the product of a panel is formed (the job key predict.precision):
///   float64    values and products in FP64
///   float32    values rounded to FP32, products summed in FP32
///   split      values rounded to hi + lo, two bfloat16 each; products in FP64, because FP32 sums over 64 or
///              more tokens have a larger error than this rounding (measured in R²: 2e-6 against 4e-7)
///   bfloat16   values rounded to one bfloat16; their products are exact and summed in FP32
/// For `split`, GPUs round to more bits and multiply 8-bit integers, whose sums are exact
/// (device/integer_product.h).
enum class Precision { float64, float32, split, bfloat16 };

inline const WordList<Precision>& precision_words() {
  static const WordList<Precision> words{{"float64", Precision::float64},
                                         {"float32", Precision::float32},
                                         {"split", Precision::split},
                                         {"bfloat16", Precision::bfloat16}};
  return words;
}

/// Returns whether products are formed in FP64; otherwise they are formed in FP32.
inline bool multiplies_doubles(Precision precision) {
  return precision == Precision::float64 || precision == Precision::split;
}

/// Sets out[j] = in[j] - origin[j], rounded as `precision` multiplies it: to nearest, ties to even. If `sums`
/// is not null, also adds sums[j] += out[j]. T: double or float; P: double where the precision multiplies
/// doubles, else float.
template <class T, class P>
void shift_values(const T* in, const double* origin, std::int64_t count, Precision precision, P* out,
                  double* sums);

/// Adds sums[j] += values[j]. T: double or float.
template <class T>
void add_values(const T* values, std::int64_t count, double* sums);

}  // namespace headspan
