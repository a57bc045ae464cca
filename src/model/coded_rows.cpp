#include "model/coded_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/each_processor.h"

namespace headspan {
namespace {

constexpr std::int64_t kColumns = 128;  // that are unpacked at a time
constexpr std::int64_t kGroup = 8;      // codes that fill whole bytes
constexpr int kRows = 4;                // multiplied at a time
constexpr float kLargest = 32767;
constexpr float kLeast = 1e-30F;  // what is smaller in magnitude counts as zero

/// A vector of words, and what is made of it; its halves are 16-bit integers.
template <int Lanes>
struct Vector {
  typedef std::uint32_t Words __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
  typedef std::int32_t Ints __attribute__((vector_size(4 * Lanes)));
  typedef std::int16_t Halves __attribute__((vector_size(4 * Lanes)));
  typedef float Floats __attribute__((vector_size(4 * Lanes)));
};

template <int Lanes>
using Words = typename Vector<Lanes>::Words;
template <int Lanes>
using Ints = typename Vector<Lanes>::Ints;
template <int Lanes>
using Floats = typename Vector<Lanes>::Floats;

template <class To, class From>
HS_INLINED inline void load(const From* from, To& to) {
  std::memcpy(&to, from, sizeof to);
}

/// sum += lower half of a * lower half of b + upper half * upper half, in every lane.
template <int Lanes>
HS_INLINED inline void add_pairs(const Words<Lanes>& a, const Words<Lanes>& b, Ints<Lanes>& sum) {
#if HS_SEVERAL_PROCESSORS
  typename Vector<Lanes>::Halves own, other;
  load(&a, own);
  load(&b, other);
  if constexpr (Lanes == 16)
    sum += __builtin_ia32_pmaddwd512_mask(own, other, Ints<16>{}, 0xffff);
  else if constexpr (Lanes == 8)
    sum += __builtin_ia32_pmaddwd256(own, other);
  else
    sum += __builtin_ia32_pmaddwd128(own, other);
#else
  Ints<Lanes> own, other;
  load(&a, own);
  load(&b, other);
  sum += (own >> 16) * (other >> 16) + (own << 16 >> 16) * (other << 16 >> 16);
#endif
}

/// Codes 2^(bits - 1) less, so that they lie around zero, in both halves.
template <int Bits, class W>
HS_INLINED inline void centre(W& codes) {
  typename Vector<sizeof(W) / 4>::Halves halves;
  load(&codes, halves);
  halves -= 1 << (Bits - 1);
  load(&halves, codes);
}

HS_INLINED inline const std::uint8_t* row_of(const CodedRows& codes, std::int64_t row) {
  return codes.codes + std::min(row, codes.rows - 1) * codes.stride;
}

HS_INLINED inline std::uint32_t word_at(const std::uint8_t* codes) {
  std::uint32_t word;
  std::memcpy(&word, codes, sizeof word);
  return word;
}

std::int64_t whole_groups(std::int64_t columns) { return (columns + kGroup - 1) / kGroup * kGroup; }

/// Eight codes fill `Bits` bytes. Where the second four of them begin: a byte, and a bit of the word there.
constexpr int second_byte(int bits) { return bits <= 4 ? 0 : 4 * bits / 8; }
constexpr int second_bit(int bits) { return 4 * bits - 8 * second_byte(bits); }

/// Codes `first` and on, at most kColumns of them, as pairs[c / 2, t]: columns c and c + 1 of token t. Behind
/// the last token it repeats.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_pairs_of_columns(const CodedRows& codes, std::int64_t first,
                                               std::int64_t columns, std::uint32_t* pairs) {
  constexpr std::uint32_t kMask = (1U << Bits) - 1;
  for (std::int64_t t = 0; t < codes.rows; t += Lanes) {
    const std::uint8_t* rows[Lanes];
    for (int i = 0; i < Lanes; ++i) rows[i] = row_of(codes, t + i) + first / kGroup * Bits;
    std::uint32_t* to = pairs + t;
    for (std::int64_t c = 0; c < columns; c += kGroup) {
      Words<Lanes> words;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        if (half == 0 || second_byte(Bits) > 0) {
#pragma GCC unroll 16
          for (int i = 0; i < Lanes; ++i)
            words[i] = word_at(rows[i] + c / kGroup * Bits + half * second_byte(Bits));
        }
#pragma GCC unroll 2
        for (int p = 0; p < 2; ++p, to += kCodedTokens) {
          const int bit = half * second_bit(Bits) + 2 * p * Bits;
          Words<Lanes> own = (words >> bit & kMask) | (words >> (bit + Bits) & kMask) << 16;
          centre<Bits>(own);
          std::memcpy(to, &own, sizeof own);
        }
      }
    }
  }
}

template <int Bits>
HS_INLINED inline void load_eight(const std::uint8_t* codes, Words<8>& values) {
  constexpr int s = second_bit(Bits);
  constexpr Words<8> kShifts = {0, Bits, 2 * Bits, 3 * Bits, s, s + Bits, s + 2 * Bits, s + 3 * Bits};
  const std::uint32_t a = word_at(codes), b = word_at(codes + second_byte(Bits));
  values = Words<8>{a, a, a, a, b, b, b, b} >> kShifts & ((1U << Bits) - 1);
}

/// Likewise as pairs[t / 2, c]: column first + c of tokens t and t + 1.
template <int Bits>
HS_INLINED inline void unpack_pairs_of_tokens(const CodedRows& codes, std::int64_t first,
                                              std::int64_t columns, std::uint32_t* pairs) {
  for (std::int64_t t = 0; t < codes.rows; t += 2, pairs += kColumns) {
    const std::uint8_t *one = row_of(codes, t) + first / kGroup * Bits,
                       *two = row_of(codes, t + 1) + first / kGroup * Bits;
    for (std::int64_t c = 0; c < columns; c += kGroup, one += Bits, two += Bits) {
      Words<8> own, other;
      load_eight<Bits>(one, own);
      load_eight<Bits>(two, other);
      own |= other << 16;
      centre<Bits>(own);
      std::memcpy(pairs + c, &own, sizeof own);
    }
  }
}

/// Calls use(bits) with a constant.
template <class Use>
HS_INLINED inline void with_bits(int bits, const Use& use) {
  switch (bits) {
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    default:
      return use(std::integral_constant<int, 5>());
  }
}

/// sums[m * Vectors + v] = sum over i of x[m, i] times vector v of row i of z, for pairs in every lane.
template <int Lanes, int Rows, int Vectors>
HS_INLINED inline void sum_pairs(const std::uint32_t* const* x, const std::uint32_t* z,
                                 std::int64_t z_leading, std::int64_t count, Ints<Lanes>* sums) {
  Ints<Lanes> own[Rows * Vectors] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    Words<Lanes> row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) load(z + i * z_leading + v * Lanes, row[v]);
#pragma GCC unroll 4
    for (int m = 0; m < Rows; ++m) {
      const Words<Lanes> factor = Words<Lanes>{} + x[m][i];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) add_pairs<Lanes>(factor, row[v], own[m * Vectors + v]);
    }
  }
  std::memcpy(sums, own, sizeof own);
}

/// Calls use(m, lane's first place, sums of a vector) for `rows` <= kRows rows times `width` lanes of z: a
/// whole number of vectors.
template <int Lanes, int Rows, class Use>
HS_INLINED inline void for_each_sum(const std::uint32_t* const* x, const std::uint32_t* z,
                                    std::int64_t z_leading, std::int64_t count, std::int64_t width,
                                    const Use& use) {
  constexpr int kVectors = Lanes / 4;
  Ints<Lanes> sums[Rows * kVectors];
  std::int64_t c = 0;
  for (; c + kVectors * Lanes <= width; c += kVectors * Lanes) {
    sum_pairs<Lanes, Rows, kVectors>(x, z + c, z_leading, count, sums);
    for (int i = 0; i < Rows * kVectors; ++i) use(i / kVectors, c + i % kVectors * Lanes, sums[i]);
  }
  for (; c < width; c += Lanes) {
    sum_pairs<Lanes, Rows, 1>(x, z + c, z_leading, count, sums);
    for (int m = 0; m < Rows; ++m) use(m, c, sums[m]);
  }
}

template <int Lanes, class Use>
HS_INLINED inline void for_each_sum_of(std::int64_t rows, const std::uint32_t* const* x,
                                       const std::uint32_t* z, std::int64_t z_leading, std::int64_t count,
                                       std::int64_t width, const Use& use) {
  if (rows == 4) for_each_sum<Lanes, 4>(x, z, z_leading, count, width, use);
  if (rows == 3) for_each_sum<Lanes, 3>(x, z, z_leading, count, width, use);
  if (rows == 2) for_each_sum<Lanes, 2>(x, z, z_leading, count, width, use);
  if (rows == 1) for_each_sum<Lanes, 1>(x, z, z_leading, count, width, use);
}

/// y[i] += sums[i] * factor[i] + add for i < count, all lanes or fewer. Factor: a vector or a number.
template <int Lanes, class Factor>
HS_INLINED inline void add_scaled(const Ints<Lanes>& sums, const Factor& factor, float add,
                                  std::int64_t count, float* y) {
  const Floats<Lanes> values = __builtin_convertvector(sums, Floats<Lanes>) * factor + add;
  if (count >= Lanes) {
    Floats<Lanes> total;
    load(y, total);
    total += values;
    std::memcpy(y, &total, sizeof total);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) y[i] += values[i];
}

/// Four, or nearly equal parts of what is left.
HS_INLINED inline std::int64_t rows_at_a_time(std::int64_t rows) {
  if (rows >= 2 * kRows || rows <= kRows) return std::min<std::int64_t>(rows, kRows);
  return (rows + 1) / 2;
}

/// The middle of the codes as a number: what is left where codes are centred.
HS_INLINED inline void middles_of(const CodedBlock& z, float* middles) {
  const auto middle = static_cast<float>(1 << (z.codes.bits - 1));
  for (std::int64_t t = 0; t < kCodedTokens; ++t) middles[t] = z.base[t] + middle * z.step[t];
}

struct CodedTransposed {
  template <int Lanes>
  HS_INLINED static void run(const IntegerRows* x, const CodedBlock* z, float* y, std::int64_t y_leading) {
    with_bits(
        z->codes.bits, [&](auto bits)
                           __attribute__((always_inline)) { add<Lanes, bits>(*x, *z, y, y_leading); });
  }

  template <int Lanes, int Bits>
  HS_INLINED static void add(const IntegerRows& x, const CodedBlock& z, float* y, std::int64_t y_leading) {
    alignas(64) std::uint32_t pairs[kColumns / 2 * kCodedTokens];
    float middles[kCodedTokens];
    middles_of(z, middles);
    const std::int64_t tokens = z.codes.rows, whole = (tokens + Lanes - 1) / Lanes * Lanes;
    for (std::int64_t m = 0; m < x.rows(); ++m)
      for (std::int64_t t = 0; t < tokens; ++t) y[m * y_leading + t] += x.sum(m) * middles[t];
    for (std::int64_t c = 0; c < z.codes.count; c += kColumns) {
      const std::int64_t count = whole_groups(std::min(kColumns, z.codes.count - c));
      unpack_pairs_of_columns<Lanes, Bits>(z.codes, c, count, pairs);
      for (std::int64_t m = 0, taken; m < x.rows(); m += taken) {
        taken = rows_at_a_time(x.rows() - m);
        const std::uint32_t* each[kRows];
        for (std::int64_t i = 0; i < taken; ++i) each[i] = x.pairs(m + i) + c / 2;
        const auto use = [&](int i, std::int64_t t, const Ints<Lanes>& sums) __attribute__((always_inline)) {
          Floats<Lanes> step;
          load(z.step + t, step);
          add_scaled<Lanes>(sums, x.factor(m + i) * step, 0, tokens - t, y + (m + i) * y_leading + t);
        };
        for_each_sum_of<Lanes>(taken, each, pairs, kCodedTokens, count / 2, whole, use);
      }
    }
  }
};

HS_INLINED inline float largest_magnitude(const float* x, std::int64_t count) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i) largest = std::abs(x[i]) > largest ? std::abs(x[i]) : largest;
  return largest;
}

/// To the nearest integer, where it is one of 16 bits.
HS_INLINED inline std::int16_t rounded(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the lowest bits
  return static_cast<std::int16_t>(__builtin_bit_cast(std::uint32_t, x + kRound));
}

/// integers = x / factor, rounded. Returns the factor.
HS_INLINED inline float round_row(const float* x, std::int64_t count, std::int16_t* integers) {
  const float largest = largest_magnitude(x, count);
  const float inverse = largest > kLeast ? kLargest / largest : 0;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) integers[i] = rounded(x[i] * inverse);
  return largest / kLargest;
}

/// Rows of weights times the steps of their tokens: pairs of neighbouring tokens.
struct IntegerWeights {
  std::uint32_t pairs[kRows][kCodedTokens / 2];
  float factors[kRows];
  float middles[kRows];  ///< what the weights make of the middles
};

/// w: a row of the weights, zero behind the last token.
HS_INLINED inline void round_weights(const float* w, const CodedBlock& z, const float* middles,
                                     std::int64_t row, IntegerWeights& to) {
  float products[kCodedTokens];
  float middle = 0;
#pragma omp simd reduction(+ : middle)
  for (std::int64_t t = 0; t < kCodedTokens; ++t) {
    products[t] = w[t] * z.step[t];
    middle += w[t] * middles[t];
  }
  std::int16_t integers[kCodedTokens];
  to.factors[row] = round_row(products, kCodedTokens, integers);
  to.middles[row] = middle;
  std::memcpy(to.pairs[row], integers, sizeof integers);
}

struct CodedProduct {
  template <int Lanes>
  HS_INLINED static void run(const float* w, std::int64_t w_leading, std::int64_t rows, const CodedBlock* z,
                             float* y, std::int64_t y_leading) {
    with_bits(
        z->codes.bits, [&](auto bits) __attribute__((always_inline)) {
          add<Lanes, bits>(w, w_leading, rows, *z, y, y_leading);
        });
  }

  template <int Lanes, int Bits>
  HS_INLINED static void add(const float* w, std::int64_t w_leading, std::int64_t rows, const CodedBlock& z,
                             float* y, std::int64_t y_leading) {
    float middles[kCodedTokens];
    middles_of(z, middles);
    alignas(64) std::uint32_t pairs[kCodedTokens / 2 * kColumns];
    for (std::int64_t c = 0; c < z.codes.count; c += kColumns) {
      const std::int64_t count = std::min(kColumns, z.codes.count - c);
      unpack_pairs_of_tokens<Bits>(z.codes, c, whole_groups(count), pairs);
      for (std::int64_t m = 0, taken; m < rows; m += taken) {
        taken = rows_at_a_time(rows - m);
        add_rows<Lanes>(w + m * w_leading, w_leading, taken, z, middles, pairs, count, y + m * y_leading + c,
                        y_leading);
      }
    }
  }

  template <int Lanes>
  HS_INLINED static void add_rows(const float* w, std::int64_t w_leading, std::int64_t rows,
                                  const CodedBlock& z, const float* middles, const std::uint32_t* pairs,
                                  std::int64_t columns, float* y, std::int64_t y_leading) {
    IntegerWeights weights;
    const std::uint32_t* each[kRows];
    for (std::int64_t m = 0; m < rows; ++m) {
      const float* own = w + m * w_leading;
      float padded[kCodedTokens];
      if (z.codes.rows < kCodedTokens) {
        std::fill(std::copy_n(own, z.codes.rows, padded), padded + kCodedTokens, 0.0F);
        own = padded;
      }
      round_weights(own, z, middles, m, weights);
      each[m] = weights.pairs[m];
    }
    const auto use = [&](int m, std::int64_t c, const Ints<Lanes>& sums) __attribute__((always_inline)) {
      add_scaled<Lanes>(sums, weights.factors[m], weights.middles[m], columns - c, y + m * y_leading + c);
    };
    const std::int64_t whole = (columns + Lanes - 1) / Lanes * Lanes;
    for_each_sum_of<Lanes>(rows, each, pairs, kColumns, (z.codes.rows + 1) / 2, whole, use);
  }
};

HS_FOR_EACH_PROCESSOR float round_one_row(const float* x, std::int64_t count, std::int16_t* integers) {
  return round_row(x, count, integers);
}

HS_FOR_EACH_PROCESSOR float sum_of(const float* x, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

}  // namespace

IntegerRows::IntegerRows(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns)
    : leading_(whole_groups(columns) / 2), pairs_(static_cast<std::size_t>(rows * leading_)) {
  std::vector<std::int16_t> integers(static_cast<std::size_t>(2 * leading_));
  for (std::int64_t m = 0; m < rows; ++m, x += x_leading) {
    factors_.push_back(round_one_row(x, columns, integers.data()));
    sums_.push_back(sum_of(x, columns));
    std::memcpy(pairs_.data() + m * leading_, integers.data(), integers.size() * sizeof integers[0]);
  }
}

void add_coded_transposed(const IntegerRows& x, const CodedBlock& z, float* y, std::int64_t y_leading) {
  for_this_processor<CodedTransposed>(&x, &z, y, y_leading);
}

void add_coded(const float* w, std::int64_t w_leading, std::int64_t rows, const CodedBlock& z, float* y,
               std::int64_t y_leading) {
  for_this_processor<CodedProduct>(w, w_leading, rows, &z, y, y_leading);
}

}  // namespace headspan
