#include "model/kernels/quantized_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/int16_unpack.h"

namespace headspan {

using namespace int16_unpack;

namespace {

constexpr std::int64_t kRows = 16;      // rows of the other factor, taken at a time
constexpr std::int64_t kRowGroup = 16;  // columns of the widest vector
constexpr float kLargest = 32767;
constexpr float kSmallest = 1e-30F;  // smaller magnitudes count as zero

/// Runs a kernel as for_this_processor does, with fused products if the processor has them.
template <class Kernel, class... Arguments>
void run_kernel(Arguments... arguments) {
#if HS_SEVERAL_PROCESSORS
  if (has_vnni()) return run_with_vnni<Kernel>(arguments...);
#endif
  for_this_processor<Kernel>(arguments...);
}

/// Adds to every lane of `sum` the product of the lower halves of a and b and that of the upper halves.
/// `Fused`: in one instruction (AVX-512 VNNI).
template <int Lanes, bool Fused>
HS_INLINED inline void add_pairs(const Words<Lanes>& a, const Words<Lanes>& b, Ints<Lanes>& sum) {
#if HS_NAMED_INSTRUCTIONS
  typename Vector<Lanes>::Shorts shorts_a, shorts_b;
  load(&a, shorts_a);
  load(&b, shorts_b);
  if constexpr (Fused) {
    Ints<Lanes> ints_a, ints_b;
    load(&a, ints_a);
    load(&b, ints_b);
    sum = __builtin_ia32_vpdpwssd_v16si(sum, ints_a, ints_b);
  } else if constexpr (Lanes == 16)
    sum += __builtin_ia32_pmaddwd512_mask(shorts_a, shorts_b, Ints<16>{}, 0xffff);
  else if constexpr (Lanes == 8)
    sum += __builtin_ia32_pmaddwd256(shorts_a, shorts_b);
  else
    sum += __builtin_ia32_pmaddwd128(shorts_a, shorts_b);
#else
  Ints<Lanes> ints_a, ints_b;
  load(&a, ints_a);
  load(&b, ints_b);
  sum += (ints_a >> 16) * (ints_b >> 16) + (ints_a << 16 >> 16) * (ints_b << 16 >> 16);
#endif
}

/// Pairs of 16-bit integers in words: [count, width], rows `leading` apart; `width` is a whole number of
/// vectors.
struct PairMatrix {
  const std::uint32_t* pairs;
  std::int64_t leading, count, width;
};

/// Sets sums[m * Vectors + v] to the sum over i of x[m][i] times vector v, counted from lane `first`, of row
/// i of z. Does not overflow 32 bits: a sum has at most 128 products below 2^15 * 2^7 each.
template <int Lanes, bool Fused, int Rows, int Vectors>
HS_INLINED inline void sum_pairs(const std::uint32_t* const* x, const PairMatrix& z, std::int64_t first,
                                 Ints<Lanes>* sums) {
  Ints<Lanes> partial[Rows * Vectors] = {};
  for (std::int64_t i = 0; i < z.count; ++i) {
    Words<Lanes> row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) load(z.pairs + i * z.leading + first + v * Lanes, row[v]);
#pragma GCC unroll 4
    for (int m = 0; m < Rows; ++m) {
      const Words<Lanes> factor = Words<Lanes>{} + x[m][i];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) add_pairs<Lanes, Fused>(factor, row[v], partial[m * Vectors + v]);
    }
  }
  std::memcpy(sums, partial, sizeof partial);
}

/// Returns for how many rows a processor has registers, if each row takes `vectors` vectors of sums.
template <int Lanes>
constexpr int rows_with(int vectors) {
  return 8 * vectors <= Lanes ? 8 : 4;
}

/// Calls use(m, first lane, sums of a vector) for `rows` rows of x times all lanes of z.
template <int Lanes, bool Fused, class Use>
HS_INLINED inline void for_each_sum(std::int64_t rows, const std::uint32_t* const* x, const PairMatrix& z,
                                    const Use& use) {
  constexpr int kVectors = Lanes / 4;
  for (std::int64_t v = 0, taken; v < z.width / Lanes; v += taken) {
    taken = next_part(z.width / Lanes - v, kVectors);
    with_constant<kVectors>(taken, [&](auto vectors) HS_INLINED {
      constexpr int kAtATime = rows_with<Lanes>(vectors);
      for (std::int64_t m = 0, height; m < rows; m += height) {
        height = next_part(rows - m, kAtATime);
        with_constant<kAtATime>(height, [&](auto own_rows) HS_INLINED {
          Ints<Lanes> sums[own_rows * vectors];
          sum_pairs<Lanes, Fused, own_rows, vectors>(x + m, z, v * Lanes, sums);
          for (int i = 0; i < own_rows * vectors; ++i)
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

struct TransposedKernel {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const IntegerRows* x, const QuantizedBlock* z, float* y,
                             std::int64_t y_leading) {
    const std::int64_t tokens = z->rows(), columns = z->columns();
    for (std::int64_t m = 0; m < x->rows(); ++m)
      for (std::int64_t t = 0; t < tokens; ++t) y[m * y_leading + t] += x->sum(m) * z->middle[t];
    alignas(64) std::uint32_t words[kColumns / 2 * kQuantizedTokens];
    for (std::int64_t c = 0; c < columns; c += kColumns) {
      const std::int64_t count = std::min(kColumns, columns - c);
      for_each_section(*z, c, count,
                       [&](auto bits, const RowStarts& codes, std::int64_t part, std::int64_t to) HS_INLINED {
                         unpack_pairs_of_columns<Lanes, bits>(codes, tokens, whole_groups(part),
                                                              words + to / 2 * kQuantizedTokens);
                       });
      const PairMatrix pairs{words, kQuantizedTokens, whole_groups(count) / 2, whole_vectors<Lanes>(tokens)};
      for (std::int64_t first = 0; first < x->rows(); first += kRows) {
        const std::int64_t rows = std::min(kRows, x->rows() - first);
        const std::uint32_t* row_pairs[kRows];
        for (std::int64_t m = 0; m < rows; ++m) row_pairs[m] = x->pairs(first + m) + c / 2;
        const auto add = [=](std::int64_t m, std::int64_t t, const Ints<Lanes>& sums) HS_INLINED {
          Floats<Lanes> step;
          load(z->step + t, step);
          add_scaled<Lanes>(sums, x->factor(first + m) * step, 0, tokens - t,
                            y + (first + m) * y_leading + t);
        };
        for_each_sum<Lanes, Fused>(rows, row_pairs, pairs, add);
      }
    }
  }
};

constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits

/// Stores values times `inverse`, rounded to 16-bit integers.
template <int Lanes>
HS_INLINED inline void store_rounded(const Floats<Lanes>& values, float inverse, std::uint32_t* to) {
  using Integers = typename Vector<Lanes>::Halves;
  const Floats<Lanes> shifted = values * inverse + kRound;
  Words<Lanes> words;
  load(&shifted, words);
  const Integers integers = __builtin_convertvector(words, Integers);
  std::memcpy(to, &integers, sizeof integers);
}

/// Returns the factor that scales the largest magnitude to kLargest.
HS_INLINED inline float inverse_of(float largest) { return largest > kSmallest ? kLargest / largest : 0; }

/// Reduces all lanes by an associative operation.
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
  const Floats<Lanes> magnitudes = values > -values ? values : -values;
  largest = magnitudes > largest ? magnitudes : largest;
}

template <int Lanes>
HS_INLINED inline float largest_of(const Floats<Lanes>& lanes) {
  return reduce<Lanes>(lanes, [](const auto& a, const auto& b) HS_INLINED { return a > b ? a : b; });
}

template <int Lanes>
HS_INLINED inline float sum_of(const Floats<Lanes>& lanes) {
  return reduce<Lanes>(lanes, [](const auto& a, const auto& b) HS_INLINED { return a + b; });
}

/// A row of weights, each multiplied by the step of its token, as factor * integer; a word holds two
/// neighbouring tokens.
struct IntegerWeights {
  std::uint32_t pairs[kQuantizedTokens / 2];
  float factor;
  float middle;  ///< the sum over tokens of weight times middle
};

/// Rounds the weights w: [tokens of z].
template <int Lanes>
HS_INLINED inline void round_weights(const float* w, const QuantizedBlock& z, IntegerWeights& to) {
  constexpr int kVectors = kQuantizedTokens / Lanes;
  float padded[kQuantizedTokens];
  if (z.rows() < kQuantizedTokens) {
    std::fill(std::copy_n(w, z.rows(), padded), padded + kQuantizedTokens, 0.0F);
    w = padded;
  }
  Floats<Lanes> products[kVectors], middle = {}, lanes = {};
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Floats<Lanes> weights, step, middles;
    load(w + v * Lanes, weights);
    load(z.step + v * Lanes, step);
    load(z.middle + v * Lanes, middles);
    products[v] = weights * step;
    middle += weights * middles;
    keep_larger<Lanes>(products[v], lanes);
  }
  const float largest = largest_of<Lanes>(lanes);
  to.factor = largest / kLargest;
  to.middle = sum_of<Lanes>(middle);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
    store_rounded<Lanes>(products[v], inverse_of(largest), to.pairs + v * Lanes / 2);
}

struct ProductKernel {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const float* w, std::int64_t w_leading, std::int64_t rows,
                             const QuantizedBlock* z, float* y, std::int64_t y_leading) {
    const std::int64_t columns = z->columns();
    alignas(64) std::uint32_t words[kQuantizedTokens / 2 * kPairsOfToken];
    for (std::int64_t c = 0; c < columns; c += kColumns) {
      const std::int64_t count = std::min(kColumns, columns - c);
      for_each_section(*z, c, count,
                       [&](auto bits, const RowStarts& codes, std::int64_t part, std::int64_t to) HS_INLINED {
                         unpack_pairs_of_tokens<Lanes, bits>(codes, z->rows(), part, words + to);
                       });
      const PairMatrix pairs{words, kPairsOfToken, (z->rows() + 1) / 2, whole_vectors<Lanes>(count)};
      for (std::int64_t first = 0; first < rows; first += kRows) {
        const std::int64_t height = std::min(kRows, rows - first);
        IntegerWeights weights[kRows];
        const std::uint32_t* row_pairs[kRows];
        for (std::int64_t m = 0; m < height; ++m) {
          round_weights<Lanes>(w + (first + m) * w_leading, *z, weights[m]);
          row_pairs[m] = weights[m].pairs;
        }
        const auto add = [&](std::int64_t m, std::int64_t lane, const Ints<Lanes>& sums) HS_INLINED {
          add_scaled<Lanes>(sums, weights[m].factor, weights[m].middle, count - lane,
                            y + (first + m) * y_leading + c + lane);
        };
        for_each_sum<Lanes, Fused>(height, row_pairs, pairs, add);
      }
    }
  }
};

struct RoundRow {
  /// Rounds one row. pairs: whole groups of kRowGroup columns, zero after the last column.
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const float* x, std::int64_t columns, std::uint32_t* pairs, float* factor,
                             float* sum) {
    Floats<Lanes> total = {}, lanes = {};
    for_each_vector<Lanes>(x, columns, [&](std::int64_t, const Floats<Lanes>& values) HS_INLINED {
      total += values;
      keep_larger<Lanes>(values, lanes);
    });
    const float largest = largest_of<Lanes>(lanes), inverse = inverse_of(largest);
    for_each_vector<Lanes>(x, columns, [&](std::int64_t c, const Floats<Lanes>& values) HS_INLINED {
      store_rounded<Lanes>(values, inverse, pairs + c / 2);
    });
    *factor = largest / kLargest;
    *sum = sum_of<Lanes>(total);
  }

  /// Calls use(column, vector) for all columns; lanes after the last column are zero.
  template <int Lanes, class Use>
  HS_INLINED static void for_each_vector(const float* x, std::int64_t columns, const Use& use) {
    Floats<Lanes> values;
    std::int64_t c = 0;
    for (; c + Lanes <= columns; c += Lanes) {
      load(x + c, values);
      use(c, values);
    }
    if (c == columns) return;
    float rest[Lanes] = {};
    std::copy(x + c, x + columns, rest);
    load(rest, values);
    use(c, values);
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
    run_kernel<RoundRow>(x + m * x_leading, columns, pairs_.data() + m * leading_, factors_.data() + m,
                         sums_.data() + m);
}

void quantized_gemm_transposed(const IntegerRows& x, const QuantizedBlock& z, float* y,
                               std::int64_t y_leading) {
  run_kernel<TransposedKernel>(&x, &z, y, y_leading);
}

void quantized_gemm(const float* w, std::int64_t w_leading, std::int64_t rows, const QuantizedBlock& z,
                    float* y, std::int64_t y_leading) {
  run_kernel<ProductKernel>(w, w_leading, rows, &z, y, y_leading);
}

}  // namespace headspan
