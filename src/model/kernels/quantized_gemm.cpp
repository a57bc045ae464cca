#include "model/kernels/quantized_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/code_formats.h"

namespace headspan {

using namespace code_formats;

namespace {

constexpr std::int64_t kRows = 16;      // rows of the other factor, taken at a time
constexpr std::int64_t kRowGroup = 16;  // columns of the widest vector
constexpr float kLargest = 32767;
constexpr float kSmallest = 1e-30F;  // smaller magnitudes count as zero

/// Runs a kernel on bytes, or as for_this_processor does, with fused products if the processor has them.
template <class Kernel, class... Arguments>
void run_kernel(bool on_bytes, Arguments... arguments) {
#if HS_NAMED_INSTRUCTIONS
  if (on_bytes) return run_with_vbmi<Kernel>(arguments...);
#endif
  static_cast<void>(on_bytes);
#if HS_SEVERAL_PROCESSORS
  if (has_vnni()) return run_with_vnni<Kernel>(arguments...);
#endif
  for_this_processor<Kernel>(arguments...);
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
    run_as<Pairs<Lanes, Fused>>(*x, *z, y, y_leading);
  }
#if HS_NAMED_INSTRUCTIONS
  HS_INLINED static void run_on_bytes(const IntegerRows* x, const QuantizedBlock* z, float* y,
                                      std::int64_t y_leading) {
    run_as<Quads>(*x, *z, y, y_leading);
  }
#endif

 private:
  template <class Format>
  HS_INLINED static void run_as(const IntegerRows& x, const QuantizedBlock& z, float* y,
                                std::int64_t y_leading) {
    constexpr int kLanes = Format::kLanes;
    const std::int64_t tokens = z.rows(), columns = z.columns();
    for (std::int64_t m = 0; m < x.rows(); ++m)
      for (std::int64_t t = 0; t < tokens; ++t) y[m * y_leading + t] += x.sum(m) * z.middle[t];
    // kPart columns more: bytes are written by so many
    alignas(64) std::uint32_t words[(kColumns + kPart) / Format::kInWord * kQuantizedTokens];
    for (std::int64_t c = 0; c < columns; c += kColumns) {
      const std::int64_t count = std::min(kColumns, columns - c);
      for_each_section(z, c, count,
                       [&](auto bits, const RowStarts& codes, std::int64_t part, std::int64_t to) HS_INLINED {
                         Format::template unpack_columns<bits>(
                             codes, tokens, part, words + to / Format::kInWord * kQuantizedTokens);
                       });
      const WordMatrix matrix{words, kQuantizedTokens, whole_groups(count) / Format::kInWord,
                              whole_vectors<kLanes>(tokens)};
      for (std::int64_t first = 0; first < x.rows(); first += kRows) {
        const std::int64_t rows = std::min(kRows, x.rows() - first);
        const std::uint32_t* of_rows[kRows];
        for (std::int64_t m = 0; m < rows; ++m) of_rows[m] = x.words(first + m) + c / Format::kInWord;
        const auto add = [=, &x, &z](std::int64_t m, std::int64_t t, const Ints<kLanes>& sums) HS_INLINED {
          Floats<kLanes> step;
          load(z.step + t, step);
          add_scaled<kLanes>(sums, x.factor(first + m) * step, 0, tokens - t,
                             y + (first + m) * y_leading + t);
        };
        for_each_sum<Format>(rows, of_rows, x.low(), matrix, add);
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

/// Splits 16-bit integers, plus 2^15, into the upper bytes of all and, behind them, the lower ones; four in a
/// word. count: of words, whole vectors of 8.
HS_INLINED inline void split_bytes(const std::uint32_t* pairs, std::int64_t count, std::uint32_t* quads) {
  typedef std::uint8_t Sixteen __attribute__((vector_size(16)));
  for (std::int64_t i = 0; i < count; i += 8) {
    Codes<8> integers;
    load(pairs + i, integers);
    integers ^= 0x8000;
    const Sixteen upper = __builtin_convertvector(integers >> 8, Sixteen),
                  lower = __builtin_convertvector(integers, Sixteen);
    std::memcpy(quads + i / 2, &upper, sizeof upper);
    std::memcpy(quads + (count + i) / 2, &lower, sizeof lower);
  }
}

/// A row of weights, each multiplied by the step of its token, as factor * integer; in words as those of
/// IntegerRows, of tokens instead of columns.
struct IntegerWeights {
  std::uint32_t words[kQuantizedTokens / 2];
  float factor;
  float middle;  ///< the sum over tokens of weight times middle
};

/// Rounds the weights w: [tokens of z]; two tokens in a word.
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
    store_rounded<Lanes>(products[v], inverse_of(largest), to.words + v * Lanes / 2);
}

struct ProductKernel {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const float* w, std::int64_t w_leading, std::int64_t rows,
                             const QuantizedBlock* z, float* y, std::int64_t y_leading) {
    run_as<Pairs<Lanes, Fused>>(w, w_leading, rows, *z, y, y_leading);
  }
#if HS_NAMED_INSTRUCTIONS
  HS_INLINED static void run_on_bytes(const float* w, std::int64_t w_leading, std::int64_t rows,
                                      const QuantizedBlock* z, float* y, std::int64_t y_leading) {
    run_as<Quads>(w, w_leading, rows, *z, y, y_leading);
  }
#endif

 private:
  template <class Format>
  HS_INLINED static void run_as(const float* w, std::int64_t w_leading, std::int64_t rows,
                                const QuantizedBlock& z, float* y, std::int64_t y_leading) {
    constexpr int kLanes = Format::kLanes;
    const std::int64_t columns = z.columns();
    alignas(64) std::uint32_t words[kQuantizedTokens / Format::kInWord * Format::kWordsOfToken];
    for (std::int64_t c = 0; c < columns; c += kColumns) {
      const std::int64_t count = std::min(kColumns, columns - c);
      for_each_section(z, c, count,
                       [&](auto bits, const RowStarts& codes, std::int64_t part, std::int64_t to) HS_INLINED {
                         Format::template unpack_tokens<bits>(codes, z.rows(), part, words + to);
                       });
      const WordMatrix matrix{words, Format::kWordsOfToken,
                              (z.rows() + Format::kInWord - 1) / Format::kInWord,
                              whole_vectors<kLanes>(count)};
      for (std::int64_t first = 0; first < rows; first += kRows) {
        const std::int64_t height = std::min(kRows, rows - first);
        IntegerWeights weights[kRows];
        const std::uint32_t* of_rows[kRows];
        for (std::int64_t m = 0; m < height; ++m) {
          round_weights<kLanes>(w + (first + m) * w_leading, z, weights[m]);
          if constexpr (Format::kInWord == 4) {
            std::uint32_t pairs[kQuantizedTokens / 2];
            std::memcpy(pairs, weights[m].words, sizeof pairs);
            split_bytes(pairs, kQuantizedTokens / 2, weights[m].words);
          }
          of_rows[m] = weights[m].words;
        }
        const auto add = [&](std::int64_t m, std::int64_t lane, const Ints<kLanes>& sums) HS_INLINED {
          add_scaled<kLanes>(sums, weights[m].factor, weights[m].middle, count - lane,
                             y + (first + m) * y_leading + c + lane);
        };
        for_each_sum<Format>(height, of_rows, kQuantizedTokens / 4, matrix, add);
      }
    }
  }
};

struct RoundRow {
  /// Rounds one row. pairs: whole groups of kRowGroup columns, zero after the last column.
  template <int Lanes>
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

void split_row(const std::uint32_t* pairs, std::int64_t count, std::uint32_t* quads) {
  on_this_processor([=]() HS_INLINED { split_bytes(pairs, count, quads); });
}

}  // namespace

IntegerRows::IntegerRows(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns,
                         bool on_bytes) {
  assign(x, x_leading, rows, columns, on_bytes);
}

void IntegerRows::assign(const float* x, std::int64_t x_leading, std::int64_t rows, std::int64_t columns,
                         bool on_bytes) {
  leading_ = (columns + kRowGroup - 1) / kRowGroup * kRowGroup / 2;
  on_bytes_ = on_bytes;
  words_.assign(static_cast<std::size_t>(rows * leading_), 0);
  pairs_.assign(static_cast<std::size_t>(on_bytes ? leading_ : 0), 0);
  factors_.resize(static_cast<std::size_t>(rows));
  sums_.resize(static_cast<std::size_t>(rows));
  for (std::int64_t m = 0; m < rows; ++m) {
    std::uint32_t* const words = words_.data() + m * leading_;
    for_this_processor<RoundRow>(x + m * x_leading, columns, on_bytes ? pairs_.data() : words,
                                 factors_.data() + m, sums_.data() + m);
    if (on_bytes) split_row(pairs_.data(), leading_, words);
  }
}

void quantized_gemm_transposed(const IntegerRows& x, const QuantizedBlock& z, float* y,
                               std::int64_t y_leading) {
  run_kernel<TransposedKernel>(x.on_bytes(), &x, &z, y, y_leading);
}

void quantized_gemm(const float* w, std::int64_t w_leading, std::int64_t rows, const QuantizedBlock& z,
                    float* y, std::int64_t y_leading, bool on_bytes) {
  run_kernel<ProductKernel>(on_bytes, w, w_leading, rows, &z, y, y_leading);
}

}  // namespace headspan
