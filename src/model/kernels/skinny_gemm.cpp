#include "model/kernels/skinny_gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/vectors.h"

namespace headspan {
namespace {

using namespace simd;

constexpr int kRows = 4;                 // multiplied at a time
constexpr std::int64_t kAhead = 4096;    // bytes ahead of those being read that are prefetched
constexpr std::int64_t kRowsAhead = 16;  // likewise, where rows of columns are read

template <int Lanes>
HS_INLINED inline void load_floats(const float* from, Floats<Lanes>& to) {
  load(from, to);
}

/// Widens bfloat16, which is the upper half of a float. Named instructions, because GCC compiles the
/// conversion to longer vectors into several.
template <int Lanes>
HS_INLINED inline void load_floats(const c10::BFloat16* from, Floats<Lanes>& to) {
#if HS_NAMED_INSTRUCTIONS
  if constexpr (Lanes == 16) {
    typedef std::int16_t Shorts __attribute__((vector_size(32)));
    Shorts halves;
    load(from, halves);
    const Ints<16> words = __builtin_ia32_pmovzxwd512_mask(halves, Ints<16>{}, 0xffff) << 16;
    return load(&words, to);
  } else if constexpr (Lanes == 8) {
    typedef std::int16_t Shorts __attribute__((vector_size(16)));
    Shorts halves;
    load(from, halves);
    const Ints<8> words = __builtin_ia32_pmovzxwd256(halves) << 16;
    return load(&words, to);
  }
#endif
  typename Vector<Lanes>::Halves halves;
  load(from, halves);
  const Words<Lanes> words = __builtin_convertvector(halves, Words<Lanes>) << 16;
  load(&words, to);
}

/// Sets the lanes before `first` to zero.
template <int Lanes>
HS_INLINED inline void clear_before(std::int64_t first, Floats<Lanes>& values) {
  Ints<Lanes> lane, bits;
  for (int i = 0; i < Lanes; ++i) lane[i] = i;
  const Ints<Lanes> kept = lane >= static_cast<std::int32_t>(first);
  load(&values, bits);
  bits &= kept;
  load(&bits, values);
}

/// Loads the first `count` lanes and sets the others to zero.
template <int Lanes, class W>
HS_INLINED inline void load_some(const W* from, std::int64_t count, Floats<Lanes>& to) {
  float lanes[Lanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  load(lanes, to);
}

/// Returns which element of a followed by b is the first summand of element i in add_halves; the other
/// summand is `width` elements later.
constexpr int summand(int i, int lanes, int width) {
  const int block = i / (2 * width) * (2 * width), in_block = i % (2 * width);
  return in_block < width ? block + in_block : lanes + block + in_block - width;
}

/// Adds the lower and upper half of every 2 * Width lanes: first those of a, then those of b.
template <int Lanes, int Width, int... I>
HS_INLINED inline void add_halves(const Floats<Lanes>& a, const Floats<Lanes>& b,
                                  std::integer_sequence<int, I...> /*lanes*/, Floats<Lanes>& sum) {
  Floats<Lanes> lower, upper;
  shuffle(a, b, std::integer_sequence<int, summand(I, Lanes, Width)...>(), lower);
  shuffle(a, b, std::integer_sequence<int, summand(I, Lanes, Width) + Width...>(), upper);
  sum = lower + upper;
}

/// Sets lane i of sums[0] to the sum over the lanes of sums[i].
template <int Lanes, int Width = Lanes / 2>
HS_INLINED inline void sum_lanes(Floats<Lanes>* sums) {
#pragma GCC unroll 8
  for (int i = 0; i < Width; ++i)
    add_halves<Lanes, Width>(sums[i], sums[i + Width], std::make_integer_sequence<int, Lanes>(), sums[i]);
  if constexpr (Width > 1) sum_lanes<Lanes, Width / 2>(sums);
}

/// Adds to y[m, n] the sum over k and over the lanes of sums[(k * Rows + m) * Outputs + n].
template <int Lanes, int Rows, int Outputs>
HS_INLINED inline void add_sums(Floats<Lanes>* sums, float* y, std::int64_t y_leading) {
  sum_lanes<Lanes>(sums);
  float lanes[Lanes];
  std::memcpy(lanes, &sums[0], sizeof lanes);
#pragma GCC unroll 4
  for (int m = 0; m < Rows; ++m) {
    float total[Outputs];
    std::memcpy(total, y + m * y_leading, sizeof total);
#pragma GCC unroll 16
    for (int k = 0; k < Lanes / (Rows * Outputs); ++k)
      for (int n = 0; n < Outputs; ++n) total[n] += lanes[(k * Rows + m) * Outputs + n];
    std::memcpy(y + m * y_leading, total, sizeof total);
  }
}

/// Multiplies Rows rows by Outputs outputs, with Rows * Outputs * kSteps <= Lanes vectors of partial sums; a
/// processor has registers for 2 * Lanes vectors.
template <int Lanes, int Rows, int Outputs, class W>
HS_INLINED inline void transposed_block(const float* x, std::int64_t x_leading, const W* w,
                                        std::int64_t w_leading, std::int64_t inner, float* y,
                                        std::int64_t y_leading) {
  constexpr int kSteps = Lanes / (Rows * Outputs);
  Floats<Lanes> sums[Lanes] = {};
  const auto step = [&](int part, const auto& load_x, const auto& load_w) HS_INLINED {
    Floats<Lanes> x_lanes[Rows], w_lanes;
#pragma GCC unroll 4
    for (int m = 0; m < Rows; ++m) load_x(x + m * x_leading, x_lanes[m]);
#pragma GCC unroll 4
    for (int n = 0; n < Outputs; ++n) {
      load_w(w + n * w_leading, w_lanes);
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) sums[(part * Rows + m) * Outputs + n] += x_lanes[m] * w_lanes;
    }
  };
  std::int64_t k = 0;
  const auto whole = [&](const auto* from, Floats<Lanes>& to)
                         HS_INLINED { load_floats<Lanes>(from + k, to); };
  while (k + kSteps * Lanes <= inner) {
#pragma GCC unroll 4
    for (int n = 0; n < Outputs; ++n)
      __builtin_prefetch(reinterpret_cast<const char*>(w + n * w_leading + k) + kAhead);
#pragma GCC unroll 16
    for (int part = 0; part < kSteps; ++part, k += Lanes) step(part, whole, whole);
  }
  for (; k + Lanes <= inner; k += Lanes) step(0, whole, whole);
  if (k < inner && inner >= Lanes) {  // the last vector overlaps the one before it
    const std::int64_t first = Lanes - (inner - k);
    k = inner - Lanes;
    const auto rest = [&](const auto* from, Floats<Lanes>& to) HS_INLINED {
      load_floats<Lanes>(from + k, to);
      clear_before<Lanes>(first, to);
    };
    step(0, rest, whole);
  } else if (k < inner) {
    const auto rest = [&](const auto* from, Floats<Lanes>& to)
                          HS_INLINED { load_some<Lanes>(from, inner - k, to); };
    step(0, rest, rest);
  }
  add_sums<Lanes, Rows, Outputs>(sums, y, y_leading);
}

template <int Lanes, int Outputs, class W>
HS_INLINED inline void transposed_rows(const float* x, std::int64_t x_leading, std::int64_t rows, const W* w,
                                       std::int64_t w_leading, std::int64_t inner, float* y,
                                       std::int64_t y_leading) {
  for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
    taken = next_part(rows, kRows);
    with_constant<kRows>(taken, [&](auto height) HS_INLINED {
      transposed_block<Lanes, height, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
    });
  }
}

struct TransposedKernel {
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

/// Multiplies Rows rows by Vectors vectors of columns, or by `columns` < Lanes columns. Adds only columns
/// `first` and later to y.
template <int Lanes, int Rows, int Vectors>
HS_INLINED inline void product_block(const float* x, std::int64_t x_leading, const float* z,
                                     std::int64_t z_leading, std::int64_t first, std::int64_t columns,
                                     std::int64_t inner, float* y, std::int64_t y_leading) {
  Floats<Lanes> sums[Rows * Vectors] = {};
  const auto add = [&](const auto& load_z) HS_INLINED {
    for (std::int64_t k = 0; k < inner; ++k) {
      Floats<Lanes> row[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        load_z(z + k * z_leading + v * Lanes, row[v]);
        __builtin_prefetch(z + (k + kRowsAhead) * z_leading + v * Lanes);
      }
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) {
        const float factor = x[m * x_leading + k];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[m * Vectors + v] += factor * row[v];
      }
    }
  };
  if (columns == Vectors * Lanes)
    add([](const float* from, Floats<Lanes>& to) HS_INLINED { load(from, to); });
  else
    add([&](const float* from, Floats<Lanes>& to) HS_INLINED { load_some<Lanes>(from, columns, to); });
  if (first == 0 && columns == Vectors * Lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows * Vectors; ++i) {
      float* to = y + i / Vectors * y_leading + i % Vectors * Lanes;
      Floats<Lanes> total;
      load(to, total);
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

/// Multiplies by all columns. The last block overlaps the one before it if there are enough columns.
template <int Lanes, int Rows>
HS_INLINED inline void all_columns(const float* x, std::int64_t x_leading, const float* z,
                                   std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                                   std::int64_t y_leading) {
  constexpr int kVectors = Lanes / 4;
  for (std::int64_t c = 0, vectors; c < columns;) {
    vectors = next_part((columns - c + Lanes - 1) / Lanes, kVectors);
    if (vectors * Lanes > columns) vectors = 1;
    const std::int64_t begin = std::max<std::int64_t>(0, std::min(c, columns - vectors * Lanes));
    with_constant<kVectors>(vectors, [&](auto width) HS_INLINED {
      product_block<Lanes, Rows, width>(x, x_leading, z + begin, z_leading, c - begin,
                                        std::min<std::int64_t>(width * Lanes, columns), inner, y + begin,
                                        y_leading);
    });
    c = begin + vectors * Lanes;
  }
}

struct ProductKernel {
  template <int Lanes>
  HS_INLINED static void run(const float* x, std::int64_t x_leading, std::int64_t rows, const float* z,
                             std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                             std::int64_t y_leading) {
    for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
      taken = next_part(rows, kRows);
      with_constant<kRows>(taken, [&](auto height) HS_INLINED {
        all_columns<Lanes, height>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
      });
    }
  }
};

}  // namespace

void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const float* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading) {
  for_this_processor<TransposedKernel>(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const c10::BFloat16* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading) {
  for_this_processor<TransposedKernel>(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

void skinny_gemm(const float* x, std::int64_t x_leading, std::int64_t rows, const float* z,
                 std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                 std::int64_t y_leading) {
  for_this_processor<ProductKernel>(x, x_leading, rows, z, z_leading, columns, inner, y, y_leading);
}

}  // namespace headspan
