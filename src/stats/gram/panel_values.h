// The loops over the values of a panel: the only arithmetic on activations outside products. Compiled for
// several instruction sets (base/process/cpu_dispatch.h), which all give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/process/cpu_dispatch.h"
#include "base/word_list.h"

namespace headspan {

/// How the product of a panel is formed (the job key predict.precision):
///   float64    values and products in FP64
///   float32    values rounded to FP32, products summed in FP32
///   split      values rounded to 23 bits of the largest one and multiplied as 8-bit integers, whose sums are
///              exact, where the processor can (stats/gram/integer_kernel.h; device/integer_product.h for
///              GPUs); elsewhere rounded to hi + lo, two bfloat16 each, with products in FP64, because FP32
///              sums over 64 or more tokens have a larger error than this rounding (in R²: 2e-6 against 4e-7)
///   bfloat16   values rounded to one bfloat16; their products are exact and summed in FP32
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

/// Returns `x` rounded to bfloat16: to nearest, ties to even.
HS_INLINED inline float to_bfloat16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Returns what `precision` multiplies in place of a shifted value, rounded to nearest, ties to even: a
/// double or a float.
template <Precision precision>
HS_INLINED inline auto rounded(double value) {
  if constexpr (precision == Precision::float64) {
    return value;
  } else {
    const auto x = static_cast<float>(value);
    if constexpr (precision == Precision::float32) return x;
    const float high = to_bfloat16(x);
    return precision == Precision::bfloat16 ? high : high + to_bfloat16(x - high);
  }
}

/// Calls use(p) with `precision`, one that multiplies P, as a compile-time constant.
template <class P, class Use>
void with_precision(Precision precision, const Use& use) {
  constexpr bool kDoubles = std::is_same_v<P, double>;
  constexpr Precision kPlain = kDoubles ? Precision::float64 : Precision::float32;
  constexpr Precision kShort = kDoubles ? Precision::split : Precision::bfloat16;
  HS_ASSERT(precision == kPlain || precision == kShort);
  if (precision == kPlain) return use(std::integral_constant<Precision, kPlain>());
  use(std::integral_constant<Precision, kShort>());
}

/// Sets out[j] = in[j] - origin[j], rounded as `precision` multiplies it. T: double or float; P: double where
/// the precision multiplies doubles, else float.
template <class T, class P>
void shift_values(const T* in, const double* origin, std::int64_t count, Precision precision, P* out);

/// Adds sums[j] += in[j] - origin[j], rounded as `precision` multiplies it. T: double or float.
template <class T>
void add_shifted(const T* in, const double* origin, std::int64_t count, Precision precision, double* sums);

/// Adds sums[j] += values[j]. T: double or float.
template <class T>
void add_values(const T* values, std::int64_t count, double* sums);

}  // namespace headspan
