#include "model/row_kernels.h"

#include <algorithm>
#include <cmath>

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

}  // namespace headspan
