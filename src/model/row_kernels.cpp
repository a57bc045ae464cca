#include "model/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__)
#define HS_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_FOR_EACH_PROCESSOR
#endif
#define HS_INLINED __attribute__((always_inline))  // else a loop is compiled once, for the oldest processor

namespace headspan {
namespace {

/// exp(x) to 2 units in the last place: 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. x is bounded to
/// [-64, 64], which keeps what is made of it out of the subnormal numbers: those are slow.
HS_INLINED inline float exponential(float x) {
  x = x < -64.0f ? -64.0f : x;
  x = x > 64.0f ? 64.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  const float tail = ((((1.0f / 720 * r + 1.0f / 120) * r + 1.0f / 24) * r + 1.0f / 6) * r + 0.5f) * r * r;
  const std::int32_t power = (static_cast<std::int32_t>(n) + 127) * (1 << 23);
  return (tail + r + 1) * __builtin_bit_cast(float, power);
}

template <class T>
HS_INLINED inline double sum_of_squares_loop(const T* x, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <class T>
HS_INLINED inline void scale_loop(const T* x, T factor, const T* gain, std::int64_t count, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * factor * gain[i];
}

/// Eight codes fill `Bits` bytes.
template <int Bits, class T>
HS_INLINED inline void expand_loop(const std::uint8_t* codes, std::int64_t count, float base, float step,
                                   T* x) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << Bits) - 1;
  for (; count >= 8; count -= 8, codes += Bits, x += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes, Bits);
#pragma omp simd
    for (int k = 0; k < 8; ++k)
      x[k] = base + static_cast<float>(static_cast<std::int32_t>(word >> (Bits * k) & kMask)) * step;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, codes, static_cast<std::size_t>((count * Bits + 7) / 8));
  for (std::int64_t k = 0; k < count; ++k)
    x[k] = base + static_cast<float>(static_cast<std::int32_t>(word >> (Bits * k) & kMask)) * step;
}

template <class T>
HS_INLINED inline void expand_any(const std::uint8_t* codes, int bits, std::int64_t count, float base,
                                  float step, T* x) {
  switch (bits) {
    case 2:
      return expand_loop<2>(codes, count, base, step, x);
    case 3:
      return expand_loop<3>(codes, count, base, step, x);
    case 4:
      return expand_loop<4>(codes, count, base, step, x);
    case 5:
      return expand_loop<5>(codes, count, base, step, x);
    case 6:
      return expand_loop<6>(codes, count, base, step, x);
    default:
      return expand_loop<8>(codes, count, base, step, x);
  }
}

}  // namespace

HS_FOR_EACH_PROCESSOR double sum_of_squares(const float* x, std::int64_t count) {
  return sum_of_squares_loop(x, count);
}

HS_FOR_EACH_PROCESSOR double sum_of_squares(const double* x, std::int64_t count) {
  return sum_of_squares_loop(x, count);
}

HS_FOR_EACH_PROCESSOR void scale_row(const float* x, float factor, const float* gain, std::int64_t count,
                                     float* y) {
  scale_loop(x, factor, gain, count, y);
}

HS_FOR_EACH_PROCESSOR void scale_row(const double* x, double factor, const double* gain, std::int64_t count,
                                     double* y) {
  scale_loop(x, factor, gain, count, y);
}

HS_FOR_EACH_PROCESSOR void silu_times(float* gate, const float* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) gate[i] = gate[i] / (1 + exponential(-gate[i])) * up[i];
}

HS_FOR_EACH_PROCESSOR void softmax_row(float* x, std::int64_t count) {
  float largest = x[0], sum = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 1; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = exponential(x[i] - largest);
    sum += x[i];
  }
  const float factor = 1 / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void softmax_row(double* x, std::int64_t count) {
  const double largest = *std::max_element(x, x + count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = std::exp(x[i] - largest);
    sum += x[i];
  }
  for (std::int64_t i = 0; i < count; ++i) x[i] /= sum;
}

HS_FOR_EACH_PROCESSOR void expand_codes(const std::uint8_t* codes, int bits, std::int64_t count, float base,
                                        float step, float* x) {
  expand_any(codes, bits, count, base, step, x);
}

HS_FOR_EACH_PROCESSOR void expand_codes(const std::uint8_t* codes, int bits, std::int64_t count, float base,
                                        float step, double* x) {
  expand_any(codes, bits, count, base, step, x);
}

}  // namespace headspan
