#include "model/kernels/quantized_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/int16_unpack.h"

namespace headspan {

using namespace int16_unpack;

namespace {

constexpr int kRows = 16;               // whose weights are rounded at a time
constexpr std::int64_t kRowGroup = 16;  // columns: of the widest vector
constexpr float kLargest = 32767;
constexpr float kLeast = 1e-30F;  // what is smaller in magnitude counts as zero

#if HS_SEVERAL_PROCESSORS
template <class Kernel, class... Arguments>
HS_COMPILED_FOR("arch=x86-64-v4,avx512vnni")
void run_fused(Arguments... arguments) {
  Kernel::template run<16, true>(arguments...);
}
#endif

/// As for_this_processor, fused where the processor can.
template <class Kernel, class... Arguments>
void run_kernel(Arguments... arguments) {
#if HS_SEVERAL_PROCESSORS
  static const bool fused = best_lanes() == 16 && __builtin_cpu_supports("avx512vnni") != 0;
  if (fused) return run_fused<Kernel>(arguments...);
#endif
  for_this_processor<Kernel>(arguments...);
}

/// sum += lower half of a * lower half of b + upper half * upper half, in every lane. Fused: in one
/// instruction (AVX-512 VNNI).
template <int Lanes, bool Fused>
HS_INLINED inline void add_pairs(const Words<Lanes>& a, const Words<Lanes>& b, Ints<Lanes>& sum) {
#if HS_NAMED_INSTRUCTIONS
  typename Vector<Lanes>::Halves own, other;
  load(&a, own);
  load(&b, other);
  if constexpr (Fused) {
    Ints<Lanes> first, second;
    load(&a, first);
    load(&b, second);
    sum = __builtin_ia32_vpdpwssd_v16si(sum, first, second);
  } else if constexpr (Lanes == 16)
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

/// sums[m * Vectors + v] = sum over i of x[m, i] times vector v of row i of z, for pairs in every lane. At
/// most 128 products of 2^15 and 2^7: far from what 32 bits hold.
template <int Lanes, bool Fused, int Rows, int Vectors>
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
      for (int v = 0; v < Vectors; ++v) add_pairs<Lanes, Fused>(factor, row[v], own[m * Vectors + v]);
    }
  }
  std::memcpy(sums, own, sizeof own);
}

/// Rows that a processor has registers for, times so many vectors.
template <int Lanes>
constexpr int rows_with(int vectors) {
  return 8 * vectors <= Lanes ? 8 : 4;
}

/// Calls use(m, lane's first place, sums of a vector) for `rows` rows times `width` lanes of z: a whole
/// number of vectors.
template <int Lanes, bool Fused, class Use>
HS_INLINED inline void for_each_sum(std::int64_t rows, const std::uint32_t* const* x, const std::uint32_t* z,
                                    std::int64_t z_leading, std::int64_t count, std::int64_t width,
                                    const Use& use) {
  constexpr int kVectors = Lanes / 4;
  for (std::int64_t v = 0, taken; v < width / Lanes; v += taken) {
    taken = next_part(width / Lanes - v, kVectors);
    with_constant<kVectors>(
        taken, [&](auto vectors) __attribute__((always_inline)) {
          constexpr int kAtATime = rows_with<Lanes>(vectors);
          for (std::int64_t m = 0, own; m < rows; m += own) {
            own = next_part(rows - m, kAtATime);
            with_constant<kAtATime>(
                own, [&](auto some) __attribute__((always_inline)) {
                  Ints<Lanes> sums[some * vectors];
                  sum_pairs<Lanes, Fused, some, vectors>(x + m, z + v * Lanes, z_leading, count, sums);
                  for (int i = 0; i < some * vectors; ++i)
                    use(m + i / vectors, (v + i % vectors) * Lanes, sums[i]);
                });
          }
        });
  }
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

template <int Lanes>
HS_INLINED inline std::int64_t whole_vectors(std::int64_t lanes) {
  return (lanes + Lanes - 1) / Lanes * Lanes;
}

/// The middle of the codes as a number: what is left where codes are centred.
HS_INLINED inline void middles_of(const QuantizedBlock& z, float* middles) {
  const auto middle = static_cast<float>(1 << (z.codes.bits - 1));
  for (std::int64_t t = 0; t < kQuantizedTokens; ++t) middles[t] = z.base[t] + middle * z.step[t];
}

struct CodedTransposed {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const IntegerRows* x, const QuantizedBlock* z, float* y,
                             std::int64_t y_leading) {
    alignas(64) std::uint32_t pairs[kColumns / 2 * kQuantizedTokens];
    float middles[kQuantizedTokens];
    middles_of(*z, middles);
    const std::int64_t tokens = z->codes.rows;
    for (std::int64_t m = 0; m < x->rows(); ++m)
      for (std::int64_t t = 0; t < tokens; ++t) y[m * y_leading + t] += x->sum(m) * middles[t];
    for (std::int64_t c = 0; c < z->codes.count; c += kColumns) {
      const std::int64_t own = std::min(kColumns, z->codes.count - c), count = whole_groups(own);
      const RowStarts starts(z->codes, c, own);
      with_bits(
          z->codes.bits, [&](auto bits) __attribute__((always_inline)) {
            unpack_pairs_of_columns<Lanes, bits>(starts, tokens, count, pairs);
          });
      for (std::int64_t m = 0; m < x->rows(); m += kRows)
        add<Lanes, Fused>(*x, m, c, count, *z, pairs, y + m * y_leading, y_leading);
    }
  }

  /// Rows `first` and on, at most kRows.
  template <int Lanes, bool Fused>
  HS_INLINED static void add(const IntegerRows& x, std::int64_t first, std::int64_t column,
                             std::int64_t columns, const QuantizedBlock& z, const std::uint32_t* pairs,
                             float* y, std::int64_t y_leading) {
    const std::int64_t rows = std::min<std::int64_t>(kRows, x.rows() - first), tokens = z.codes.rows;
    const std::uint32_t* each[kRows];
    for (std::int64_t m = 0; m < rows; ++m) each[m] = x.pairs(first + m) + column / 2;
    const auto use = [&](std::int64_t m, std::int64_t t, const Ints<Lanes>& sums)
        __attribute__((always_inline)) {
      Floats<Lanes> step;
      load(z.step + t, step);
      add_scaled<Lanes>(sums, x.factor(first + m) * step, 0, tokens - t, y + m * y_leading + t);
    };
    for_each_sum<Lanes, Fused>(rows, each, pairs, kQuantizedTokens, columns / 2, whole_vectors<Lanes>(tokens),
                               use);
  }
};

constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the lowest bits

/// Lanes 16-bit integers: values times `inverse`, to the nearest.
template <int Lanes>
HS_INLINED inline void store_rounded(const Floats<Lanes>& values, float inverse, std::uint32_t* to) {
  typedef std::uint16_t Integers __attribute__((vector_size(2 * Lanes)));
  const Floats<Lanes> shifted = values * inverse + kRound;
  Words<Lanes> words;
  load(&shifted, words);
  const Integers integers = __builtin_convertvector(words, Integers);
  std::memcpy(to, &integers, sizeof integers);
}

/// What makes the largest magnitude kLargest.
HS_INLINED inline float inverse_of(float largest) { return largest > kLeast ? kLargest / largest : 0; }

/// Op over all lanes.
template <int Lanes, class Op>
HS_INLINED inline float reduce(const Floats<Lanes>& values, const Op& op) {
  if constexpr (Lanes == 4) {
    return op(op(values[0], values[2]), op(values[1], values[3]));
  } else {
    Floats<Lanes / 2> halves[2];
    std::memcpy(halves, &values, sizeof halves);
    const Floats<Lanes / 2> both = op(halves[0], halves[1]);
    return reduce<Lanes / 2>(both, op);
  }
}

template <int Lanes>
HS_INLINED inline void keep_larger(const Floats<Lanes>& values, Floats<Lanes>& largest) {
  const Floats<Lanes> sizes = values > -values ? values : -values;
  largest = sizes > largest ? sizes : largest;
}

template <int Lanes>
HS_INLINED inline float largest_of(const Floats<Lanes>& lanes) {
  return reduce<Lanes>(
      lanes, [](const auto& a, const auto& b) __attribute__((always_inline)) { return a > b ? a : b; });
}

template <int Lanes>
HS_INLINED inline float sum_of(const Floats<Lanes>& lanes) {
  return reduce<Lanes>(
      lanes, [](const auto& a, const auto& b) __attribute__((always_inline)) { return a + b; });
}

/// Rows of weights times the steps of their tokens: pairs of neighbouring tokens.
struct IntegerWeights {
  std::uint32_t pairs[kRows][kQuantizedTokens / 2];
  float factors[kRows];
  float middles[kRows];  ///< what the weights make of the middles
};

/// w: a row of the weights, zero behind the last token.
template <int Lanes>
HS_INLINED inline void round_weights(const float* w, const QuantizedBlock& z, const float* middles,
                                     std::int64_t row, IntegerWeights& to) {
  constexpr int kVectors = kQuantizedTokens / Lanes;
  Floats<Lanes> products[kVectors], middle = {}, largest = {};
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Floats<Lanes> weights, step, own;
    load(w + v * Lanes, weights);
    load(z.step + v * Lanes, step);
    load(middles + v * Lanes, own);
    products[v] = weights * step;
    middle += weights * own;
    keep_larger<Lanes>(products[v], largest);
  }
  const float most = largest_of<Lanes>(largest);
  to.factors[row] = most / kLargest;
  to.middles[row] = sum_of<Lanes>(middle);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
    store_rounded<Lanes>(products[v], inverse_of(most), to.pairs[row] + v * Lanes / 2);
}

struct CodedProduct {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const float* w, std::int64_t w_leading, std::int64_t rows,
                             const QuantizedBlock* z, float* y, std::int64_t y_leading) {
    float middles[kQuantizedTokens];
    middles_of(*z, middles);
    alignas(64) std::uint32_t pairs[kQuantizedTokens / 2 * kColumns];
    for (std::int64_t c = 0; c < z->codes.count; c += kColumns) {
      const std::int64_t count = std::min(kColumns, z->codes.count - c);
      const RowStarts starts(z->codes, c, count);
      with_bits(
          z->codes.bits, [&](auto bits) __attribute__((always_inline)) {
            unpack_pairs_of_tokens<Lanes, bits>(starts, z->codes.rows, count, pairs);
          });
      for (std::int64_t m = 0; m < rows; m += kRows)
        add<Lanes, Fused>(w + m * w_leading, w_leading, std::min<std::int64_t>(kRows, rows - m), *z, middles,
                          pairs, count, y + m * y_leading + c, y_leading);
    }
  }

  /// rows <= kRows.
  template <int Lanes, bool Fused>
  HS_INLINED static void add(const float* w, std::int64_t w_leading, std::int64_t rows,
                             const QuantizedBlock& z, const float* middles, const std::uint32_t* pairs,
                             std::int64_t columns, float* y, std::int64_t y_leading) {
    IntegerWeights weights;
    const std::uint32_t* each[kRows];
    for (std::int64_t m = 0; m < rows; ++m) {
      const float* own = w + m * w_leading;
      float padded[kQuantizedTokens];
      if (z.codes.rows < kQuantizedTokens) {
        std::fill(std::copy_n(own, z.codes.rows, padded), padded + kQuantizedTokens, 0.0F);
        own = padded;
      }
      round_weights<Lanes>(own, z, middles, m, weights);
      each[m] = weights.pairs[m];
    }
    const auto use = [&](std::int64_t m, std::int64_t c, const Ints<Lanes>& sums)
        __attribute__((always_inline)) {
      add_scaled<Lanes>(sums, weights.factors[m], weights.middles[m], columns - c, y + m * y_leading + c);
    };
    for_each_sum<Lanes, Fused>(rows, each, pairs, kColumns, (z.codes.rows + 1) / 2,
                               whole_vectors<Lanes>(columns), use);
  }
};

struct RoundedRow {
  /// pairs: of whole groups of kRowGroup columns, zero behind the last.
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const float* x, std::int64_t columns, std::uint32_t* pairs, float* factor,
                             float* sum) {
    Floats<Lanes> total = {}, largest = {};
    for_each_vector<Lanes>(
        x, columns, [&](std::int64_t, const Floats<Lanes>& own) __attribute__((always_inline)) {
          total += own;
          keep_larger<Lanes>(own, largest);
        });
    const float most = largest_of<Lanes>(largest), inverse = inverse_of(most);
    for_each_vector<Lanes>(
        x, columns, [&](std::int64_t c, const Floats<Lanes>& own) __attribute__((always_inline)) {
          store_rounded<Lanes>(own, inverse, pairs + c / 2);
        });
    *factor = most / kLargest;
    *sum = sum_of<Lanes>(total);
  }

  /// Calls use(column, vector); zero behind the last column.
  template <int Lanes, class Use>
  HS_INLINED static void for_each_vector(const float* x, std::int64_t columns, const Use& use) {
    Floats<Lanes> own;
    std::int64_t c = 0;
    for (; c + Lanes <= columns; c += Lanes) {
      load(x + c, own);
      use(c, own);
    }
    if (c == columns) return;
    float rest[Lanes] = {};
    std::copy(x + c, x + columns, rest);
    load(rest, own);
    use(c, own);
  }
};

}  // namespace

IntegerRows::IntegerRows(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns) {
  assign(x, x_leading, rows, columns);
}

void IntegerRows::assign(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns) {
  leading_ = (columns + kRowGroup - 1) / kRowGroup * kRowGroup / 2;
  pairs_.assign(static_cast<std::size_t>(rows * leading_), 0);
  factors_.resize(static_cast<std::size_t>(rows));
  sums_.resize(static_cast<std::size_t>(rows));
  for (std::int64_t m = 0; m < rows; ++m)
    run_kernel<RoundedRow>(x + m * x_leading, columns, pairs_.data() + m * leading_, factors_.data() + m,
                           sums_.data() + m);
}

void quantized_gemm_transposed(const IntegerRows& x, const QuantizedBlock& z, float* y,
                               std::int64_t y_leading) {
  run_kernel<CodedTransposed>(&x, &z, y, y_leading);
}

void quantized_gemm(const float* w, std::int64_t w_leading, std::int64_t rows, const QuantizedBlock& z,
                    float* y, std::int64_t y_leading) {
  run_kernel<CodedProduct>(w, w_leading, rows, &z, y, y_leading);
}

}  // namespace headspan
