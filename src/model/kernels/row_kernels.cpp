#include "model/kernels/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/vectors.h"

namespace headspan {
namespace {

/// Returns exp(x) to 2 units in the last place: 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. x is
/// clipped to [-64, 64], so that no result is subnormal: subnormal numbers are slow. NaN stays NaN.
HS_INLINED inline float exponential(float x) {
  x = x < -64.0f ? -64.0f : x;
  x = x > 64.0f ? 64.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the lowest bits
  const float rounded = x * 1.44269504f + kRound, n = rounded - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  const float tail = ((((1.0f / 720 * r + 1.0f / 120) * r + 1.0f / 24) * r + 1.0f / 6) * r + 0.5f) * r * r;
  const std::uint32_t power = (__builtin_bit_cast(std::uint32_t, rounded) + 127) << 23;
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

/// Rounds by adding 1.5 * 2^52, which leaves the nearest integer in the lowest bits of a double.
template <class T>
HS_INLINED inline void round_codes_loop(const T* x, std::int64_t count, double base, double inverse,
                                        std::uint32_t last, std::uint32_t* codes) {
  constexpr double kRound = 6755399441055744.0;
  const double largest = last;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    double code = (static_cast<double>(x[i]) - base) * inverse;
    code = code > 0 ? code : 0;  // NaN too
    code = code > largest ? largest : code;
    codes[i] = static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, code + kRound));
  }
}

template <class T>
HS_INLINED inline double weighted_error_loop(const T* x, const HalfSteps& columns, T gain) {
  const T inverse = gain > 0 ? 1 / gain : 0, half = 0.5;
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns.count; ++i) {
    const T largest = columns.largest[i];
    const T level = std::nearbyint(x[i] * inverse - half) + half;
    const T error = x[i] - std::min(std::max(level, -largest), largest) * gain;
    sum += static_cast<T>(columns.weights[i]) * error * error;
  }
  return static_cast<double>(sum);
}

/// Returns the largest number. The vectors are written out because Clang does not vectorise such a loop.
HS_INLINED inline float largest_of(const float* x, std::int64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  simd::Floats<16> lanes = simd::Floats<16>{} + largest, values;
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    simd::load(x + i, values);
    lanes = values > lanes ? values : lanes;
  }
  for (int k = 0; k < 16; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
  for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/// Unpacks sixteen codes of at most 4 bits. Eight of them fill `Bits` bytes, at most one word.
template <int Bits>
HS_INLINED inline void expand_sixteen(const std::uint8_t* codes, simd::Floats<16>& numbers) {
  constexpr simd::Words<16> kShifts = {0, Bits, 2 * Bits, 3 * Bits, 4 * Bits, 5 * Bits, 6 * Bits, 7 * Bits,
                                       0, Bits, 2 * Bits, 3 * Bits, 4 * Bits, 5 * Bits, 6 * Bits, 7 * Bits};
  constexpr std::uint32_t kMask = (1U << Bits) - 1;
  std::uint32_t a, b;
  std::memcpy(&a, codes, sizeof a);
  std::memcpy(&b, codes + Bits, sizeof b);
  const simd::Words<16> words = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
  const simd::Words<16> masked = words >> kShifts & kMask;
  simd::Ints<16> integers;
  simd::load(&masked, integers);
  numbers = __builtin_convertvector(integers, simd::Floats<16>);
}

/// Unpacks eight codes of at most 8 bits.
template <int Bits>
HS_INLINED inline void expand_eight(const std::uint8_t* codes, simd::Floats<8>& numbers) {
  using LongWords = std::uint64_t __attribute__((vector_size(64)));
  constexpr LongWords kShifts = {0, Bits, 2 * Bits, 3 * Bits, 4 * Bits, 5 * Bits, 6 * Bits, 7 * Bits};
  constexpr std::uint64_t kMask = (std::uint64_t{1} << Bits) - 1;
  std::uint64_t word;
  std::memcpy(&word, codes, sizeof word);
  const LongWords masked = (LongWords{} + word) >> kShifts & kMask;
  numbers = __builtin_convertvector(__builtin_convertvector(masked, simd::Ints<8>), simd::Floats<8>);
}

template <int Bits, class T>
HS_INLINED inline void expand_row(const std::uint8_t* codes, std::int64_t count, float base, float step,
                                  T* x) {
  for (; Bits <= 4 && count >= 16; count -= 16, codes += 2 * Bits, x += 16) {
    simd::Floats<16> numbers;
    expand_sixteen<Bits>(codes, numbers);
    numbers = base + numbers * step;
    for (int k = 0; k < 16; ++k) x[k] = numbers[k];
  }
  for (; count > 0; count -= 8, codes += Bits, x += 8) {
    simd::Floats<8> numbers;
    expand_eight<Bits>(codes, numbers);
    numbers = base + numbers * step;
    for (int k = 0; k < 8; ++k) x[k] = numbers[k];
  }
}

template <int Bits, class T>
HS_INLINED inline void expand_rows(const CodedRows& codes, const float* base, const float* step, T* x,
                                   std::int64_t leading) {
  for (std::int64_t r = 0; r < codes.rows; ++r)
    expand_row<Bits>(codes.codes + r * codes.stride, codes.count, base[r], step[r], x + r * leading);
}

template <class T>
HS_INLINED inline void scale_codes_loop(const float* base, const float* step, std::int64_t count, T* x) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(base[i]) + x[i] * static_cast<T>(step[i]);
}

template <class T>
HS_INLINED inline void nearest_levels_loop(const T* x, std::int64_t count, double inverse,
                                           const float* levels, std::int64_t number, std::uint32_t* codes) {
  constexpr std::int64_t kBlock = 64;
  for (; count > 0; count -= kBlock, x += kBlock, codes += kBlock) {
    const std::int64_t here = count < kBlock ? count : kBlock;
    float scaled[kBlock];
    std::uint32_t above[kBlock];  // the first level that is greater, of those between the ends
#pragma omp simd
    for (std::int64_t i = 0; i < here; ++i) {
      scaled[i] = static_cast<float>(static_cast<double>(x[i]) * inverse);
      above[i] = 1;
    }
    for (std::int64_t level = 1; level + 1 < number; ++level)
#pragma omp simd
      for (std::int64_t i = 0; i < here; ++i) above[i] += levels[level] <= scaled[i] ? 1 : 0;
    for (std::int64_t i = 0; i < here; ++i) {
      const bool below = scaled[i] - levels[above[i] - 1] < levels[above[i]] - scaled[i];
      codes[i] = above[i] - (below ? 1 : 0);
    }
  }
}

/// With vectors of 16 numbers two of them hold all levels.
struct LookUpLevels {
  template <int Lanes, class T>
  HS_INLINED static void run(const float* levels, float gain, std::int64_t count, T* x) {
    std::int64_t i = 0;
    if constexpr (Lanes == 16) {
      simd::Floats<16> low, high, found;
      simd::load(levels, low);
      simd::load(levels + 16, high);
      for (; i + 16 <= count; i += 16) {
        simd::Ints<16> codes;
        for (int k = 0; k < 16; ++k) codes[k] = static_cast<std::int32_t>(x[i + k]);
        simd::look_up(low, high, codes, found);
        for (int k = 0; k < 16; ++k) x[i + k] = static_cast<T>(found[k]) * static_cast<T>(gain);
      }
    }
    for (; i < count; ++i)
      x[i] = static_cast<T>(levels[static_cast<std::int32_t>(x[i])]) * static_cast<T>(gain);
  }
};

}  // namespace

double sum_of_squares(const float* x, std::int64_t count) {
  return on_this_processor([=]() HS_INLINED { return sum_of_squares_loop(x, count); });
}

double sum_of_squares(const double* x, std::int64_t count) {
  return on_this_processor([=]() HS_INLINED { return sum_of_squares_loop(x, count); });
}

void scale_row(const float* x, float factor, const float* gain, std::int64_t count, float* y) {
  on_this_processor([=]() HS_INLINED { scale_loop(x, factor, gain, count, y); });
}

void scale_row(const double* x, double factor, const double* gain, std::int64_t count, double* y) {
  on_this_processor([=]() HS_INLINED { scale_loop(x, factor, gain, count, y); });
}

void silu_times(float* gate, const float* up, std::int64_t count) {
  on_this_processor([=]() HS_INLINED {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) gate[i] = gate[i] / (1 + exponential(-gate[i])) * up[i];
  });
}

float softmax_row(float* x, std::int64_t count) {
  return on_this_processor([=]() HS_INLINED {
    if (count == 0) return -std::numeric_limits<float>::infinity();
    const float largest = largest_of(x, count);
    if (largest == -std::numeric_limits<float>::infinity()) {
      std::fill_n(x, count, 0.0F);
      return largest;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] = exponential(x[i] - largest);
      sum += x[i];
    }
    const float factor = 1 / sum;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
    return largest + std::log(sum);
  });
}

double softmax_row(double* x, std::int64_t count) {
  if (count == 0) return -std::numeric_limits<double>::infinity();
  const double largest = *std::max_element(x, x + count);
  if (largest == -std::numeric_limits<double>::infinity()) {
    std::fill_n(x, count, 0.0);
    return largest;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = std::exp(x[i] - largest);
    sum += x[i];
  }
  for (std::int64_t i = 0; i < count; ++i) x[i] /= sum;
  return largest + std::log(sum);
}

double weighted_error(const float* x, const HalfSteps& columns, float gain) {
  return on_this_processor([&]() HS_INLINED { return weighted_error_loop(x, columns, gain); });
}

double weighted_error(const double* x, const HalfSteps& columns, double gain) {
  return on_this_processor([&]() HS_INLINED { return weighted_error_loop(x, columns, gain); });
}

void round_codes(const float* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes) {
  on_this_processor([=]() HS_INLINED { round_codes_loop(x, count, base, inverse, last, codes); });
}

void round_codes(const double* x, std::int64_t count, double base, double inverse, std::uint32_t last,
                 std::uint32_t* codes) {
  on_this_processor([=]() HS_INLINED { round_codes_loop(x, count, base, inverse, last, codes); });
}

/// Shifts exponent and fraction of a float16 to where a float has them. The exponent is then too small by
/// 112, which an exact multiplication by 2^112 corrects.
void expand_halves(const std::uint32_t* words, int shift, std::int64_t count, float* x) {
  on_this_processor([=]() HS_INLINED {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t half = words[i] >> shift;
      const float magnitude = __builtin_bit_cast(float, (half & 0x7fffu) << 13) * 0x1p112F;
      x[i] = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, magnitude) | (half & 0x8000u) << 16);
    }
  });
}

void expand_codes(const CodedRows& codes, const float* base, const float* step, float* x,
                  std::int64_t leading) {
  on_this_processor([=]() HS_INLINED {
    with_bits(codes.bits, [=](auto bits) HS_INLINED { expand_rows<bits>(codes, base, step, x, leading); });
  });
}

void expand_codes(const CodedRows& codes, const float* base, const float* step, double* x,
                  std::int64_t leading) {
  on_this_processor([=]() HS_INLINED {
    with_bits(codes.bits, [=](auto bits) HS_INLINED { expand_rows<bits>(codes, base, step, x, leading); });
  });
}

void nearest_levels(const float* x, std::int64_t count, double inverse, const float* levels,
                    std::int64_t number, std::uint32_t* codes) {
  on_this_processor([=]() HS_INLINED { nearest_levels_loop(x, count, inverse, levels, number, codes); });
}

void nearest_levels(const double* x, std::int64_t count, double inverse, const float* levels,
                    std::int64_t number, std::uint32_t* codes) {
  on_this_processor([=]() HS_INLINED { nearest_levels_loop(x, count, inverse, levels, number, codes); });
}

void look_up_levels(const float* levels, float gain, std::int64_t count, float* x) {
  for_this_processor<LookUpLevels>(levels, gain, count, x);
}

void look_up_levels(const float* levels, float gain, std::int64_t count, double* x) {
  for_this_processor<LookUpLevels>(levels, gain, count, x);
}

void scale_codes(const float* base, const float* step, std::int64_t count, float* x) {
  on_this_processor([=]() HS_INLINED { scale_codes_loop(base, step, count, x); });
}

void scale_codes(const float* base, const float* step, std::int64_t count, double* x) {
  on_this_processor([=]() HS_INLINED { scale_codes_loop(base, step, count, x); });
}

}  // namespace headspan
