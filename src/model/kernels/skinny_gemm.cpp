#include "model/kernels/skinny_gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/shuffle.h"

namespace headspan {
namespace {

constexpr int kRows = 4;               // multiplied at a time
constexpr std::int64_t kAhead = 4096;  // bytes before the row that is read: some rows of a matrix

/// A vector, and what is made of it; a processor holds 2 * Lanes of them, of which Lanes are partial sums.
template <int Lanes>
struct Vector {
  typedef float Floats __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
  typedef std::uint32_t Words __attribute__((vector_size(4 * Lanes)));
  typedef std::int32_t Ints __attribute__((vector_size(4 * Lanes)));
  typedef std::uint16_t Halves __attribute__((vector_size(2 * Lanes)));
};

template <int Lanes>
using Floats = typename Vector<Lanes>::Floats;

template <int Lanes>
HS_INLINED inline void load(const float* from, Floats<Lanes>& to) {
  std::memcpy(&to, from, sizeof to);
}

/// A bfloat16 is the upper half of a float.
template <int Lanes>
HS_INLINED inline void load(const c10::BFloat16* from, Floats<Lanes>& to) {
  typename Vector<Lanes>::Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const auto words = __builtin_convertvector(halves, typename Vector<Lanes>::Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

/// Zero in the lanes before `first`.
template <int Lanes>
HS_INLINED inline void keep_from(std::int64_t first, Floats<Lanes>& values) {
  using Ints = typename Vector<Lanes>::Ints;
  Ints lane, bits;
  for (int i = 0; i < Lanes; ++i) lane[i] = i;
  const Ints kept = lane >= static_cast<std::int32_t>(first);
  std::memcpy(&bits, &values, sizeof bits);
  bits &= kept;
  std::memcpy(&values, &bits, sizeof bits);
}

/// The first `count` lanes; the others are zero.
template <int Lanes, class W>
HS_INLINED inline void load_some(const W* from, std::int64_t count, Floats<Lanes>& to) {
  float lanes[Lanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  std::memcpy(&to, lanes, sizeof to);
}

/// Where element i of what fold makes has its first summand; the other is `width` behind it.
constexpr int folded(int i, int lanes, int width) {
  const int block = i / (2 * width) * (2 * width), place = i % (2 * width);
  return place < width ? block + place : lanes + block + place - width;
}

/// Of every 2 * Width lanes: sums of a's lower and upper halves, then of b's.
template <int Lanes, int Width, int... I>
HS_INLINED inline void fold(const Floats<Lanes>& a, const Floats<Lanes>& b,
                            std::integer_sequence<int, I...> /*lanes*/, Floats<Lanes>& sum) {
  Floats<Lanes> lower, upper;
  shuffle(a, b, std::integer_sequence<int, folded(I, Lanes, Width)...>(), lower);
  shuffle(a, b, std::integer_sequence<int, folded(I, Lanes, Width) + Width...>(), upper);
  sum = lower + upper;
}

/// Lane i of sums[0] becomes the sum over the lanes of sums[i].
template <int Lanes, int Width = Lanes / 2>
HS_INLINED inline void fold_all(Floats<Lanes>* sums) {
#pragma GCC unroll 8
  for (int i = 0; i < Width; ++i)
    fold<Lanes, Width>(sums[i], sums[i + Width], std::make_integer_sequence<int, Lanes>(), sums[i]);
  if constexpr (Width > 1) fold_all<Lanes, Width / 2>(sums);
}

/// Rows rows times Outputs outputs, in Rows * Outputs * Steps <= Lanes vectors of partial sums.
template <int Lanes, int Rows, int Outputs, class W>
HS_INLINED inline void transposed_block(const float* x, std::int64_t x_leading, const W* w,
                                        std::int64_t w_leading, std::int64_t inner, float* y,
                                        std::int64_t y_leading) {
  constexpr int kSteps = Lanes / (Rows * Outputs);
  Floats<Lanes> sums[Lanes] = {};
  const auto step = [&](int place, const auto& load_x, const auto& load_w) __attribute__((always_inline)) {
    Floats<Lanes> own[Rows], other;
#pragma GCC unroll 4
    for (int m = 0; m < Rows; ++m) load_x(x + m * x_leading, own[m]);
#pragma GCC unroll 4
    for (int n = 0; n < Outputs; ++n) {
      load_w(w + n * w_leading, other);
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) sums[(place * Rows + m) * Outputs + n] += own[m] * other;
    }
  };
  std::int64_t k = 0;
  const auto whole = [&](const auto* from, Floats<Lanes>& to) __attribute__((always_inline)) {
    load<Lanes>(from + k, to);
  };
  while (k + kSteps * Lanes <= inner) {
#pragma GCC unroll 4
    for (int n = 0; n < Outputs; ++n)
      __builtin_prefetch(reinterpret_cast<const char*>(w + n * w_leading + k) + kAhead);
#pragma GCC unroll 16
    for (int place = 0; place < kSteps; ++place, k += Lanes) step(place, whole, whole);
  }
  for (; k + Lanes <= inner; k += Lanes) step(0, whole, whole);
  if (k < inner && inner >= Lanes) {  // the last vector overlaps the one before it
    const std::int64_t first = Lanes - (inner - k);
    k = inner - Lanes;
    const auto rest = [&](const auto* from, Floats<Lanes>& to) __attribute__((always_inline)) {
      load<Lanes>(from + k, to);
      keep_from<Lanes>(first, to);
    };
    step(0, rest, whole);
  } else if (k < inner) {
    const auto rest = [&](const auto* from, Floats<Lanes>& to) __attribute__((always_inline)) {
      load_some<Lanes>(from, inner - k, to);
    };
    step(0, rest, rest);
  }
  fold_all<Lanes>(sums);
  float folded[Lanes];
  std::memcpy(folded, &sums[0], sizeof folded);
#pragma GCC unroll 4
  for (int m = 0; m < Rows; ++m) {
    float total[Outputs];
    std::memcpy(total, y + m * y_leading, sizeof total);
#pragma GCC unroll 16
    for (int place = 0; place < kSteps; ++place)
      for (int n = 0; n < Outputs; ++n) total[n] += folded[(place * Rows + m) * Outputs + n];
    std::memcpy(y + m * y_leading, total, sizeof total);
  }
}

template <int Lanes, int Outputs, class W>
HS_INLINED inline void transposed_rows(const float* x, std::int64_t x_leading, std::int64_t rows, const W* w,
                                       std::int64_t w_leading, std::int64_t inner, float* y,
                                       std::int64_t y_leading) {
  for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
    taken = next_part(rows, kRows);
    with_constant<kRows>(
        taken, [&](auto some) __attribute__((always_inline)) {
          transposed_block<Lanes, some, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
        });
  }
}

struct TransposedProduct {
  template <int Lanes, class W>
  HS_INLINED static void run(const float* x, std::int64_t x_leading, std::int64_t rows, const W* w,
                             std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                             std::int64_t y_leading) {
    constexpr int kOutputs = Lanes / 4;
    std::int64_t n = 0;
    for (; n + kOutputs <= outputs; n += kOutputs)
      transposed_rows<Lanes, kOutputs>(x, x_leading, rows, w + n * w_leading, w_leading, inner, y + n,
                                       y_leading);
    for (; n < outputs; ++n)
      transposed_rows<Lanes, 1>(x, x_leading, rows, w + n * w_leading, w_leading, inner, y + n, y_leading);
  }
};

/// Rows rows times Vectors vectors of columns, or `columns` < Lanes of them; y gets those from `first` on.
template <int Lanes, int Rows, int Vectors>
HS_INLINED inline void block(const float* x, std::int64_t x_leading, const float* z, std::int64_t z_leading,
                             std::int64_t first, std::int64_t columns, std::int64_t inner, float* y,
                             std::int64_t y_leading) {
  Floats<Lanes> sums[Rows * Vectors] = {};
  const auto add = [&](const auto& load_z) __attribute__((always_inline)) {
    for (std::int64_t k = 0; k < inner; ++k) {
      Floats<Lanes> row[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load_z(z + k * z_leading + v * Lanes, row[v]);
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) {
        const float factor = x[m * x_leading + k];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[m * Vectors + v] += factor * row[v];
      }
    }
  };
  if (columns == Vectors * Lanes)
    add([](const float* from, Floats<Lanes>& to) __attribute__((always_inline)) { load<Lanes>(from, to); });
  else
    add([&](const float* from, Floats<Lanes>& to)
            __attribute__((always_inline)) { load_some<Lanes>(from, columns, to); });
  if (first == 0 && columns == Vectors * Lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Vectors; ++i) {
      float* to = y + i / Vectors * y_leading + i % Vectors * Lanes;
      Floats<Lanes> total;
      load<Lanes>(to, total);
      total += sums[i];
      std::memcpy(to, &total, sizeof total);
    }
    return;
  }
  float values[Rows * Vectors * Lanes];
  std::memcpy(values, sums, sizeof values);
  for (int m = 0; m < Rows; ++m)
    for (std::int64_t c = first; c < columns; ++c) y[m * y_leading + c] += values[m * Vectors * Lanes + c];
}

/// The last block overlaps what is done, where there is enough.
template <int Lanes, int Rows>
HS_INLINED inline void all_columns(const float* x, std::int64_t x_leading, const float* z,
                                   std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                                   std::int64_t y_leading) {
  constexpr int kVectors = Lanes / 4;
  for (std::int64_t c = 0, vectors; c < columns;) {
    vectors = next_part((columns - c + Lanes - 1) / Lanes, kVectors);
    if (vectors * Lanes > columns) vectors = 1;
    const std::int64_t begin = std::max<std::int64_t>(0, std::min(c, columns - vectors * Lanes));
    with_constant<kVectors>(
        vectors, [&](auto some) __attribute__((always_inline)) {
          block<Lanes, Rows, some>(x, x_leading, z + begin, z_leading, c - begin,
                                   std::min<std::int64_t>(some * Lanes, columns), inner, y + begin,
                                   y_leading);
        });
    c = begin + vectors * Lanes;
  }
}

struct Product {
  template <int Lanes>
  HS_INLINED static void run(const float* x, std::int64_t x_leading, std::int64_t rows, const float* z,
                             std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                             std::int64_t y_leading) {
    for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
      taken = next_part(rows, kRows);
      with_constant<kRows>(
          taken, [&](auto some) __attribute__((always_inline)) {
            all_columns<Lanes, some>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
          });
    }
  }
};

}  // namespace

void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const float* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading) {
  for_this_processor<TransposedProduct>(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const c10::BFloat16* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading) {
  for_this_processor<TransposedProduct>(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

void skinny_gemm(const float* x, std::int64_t x_leading, std::int64_t rows, const float* z,
                 std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                 std::int64_t y_leading) {
  for_this_processor<Product>(x, x_leading, rows, z, z_leading, columns, inner, y, y_leading);
}

}  // namespace headspan
