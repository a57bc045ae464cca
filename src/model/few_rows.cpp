#include "model/few_rows.h"

#include <algorithm>
#include <cstring>

#include "base/each_processor.h"

namespace headspan {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kAhead = 4096;  // bytes before the row that is read: some rows of a matrix

using Floats = float __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Lanes = std::int32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

HS_INLINED inline void load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof to); }

/// A bfloat16 is the upper half of a float.
HS_INLINED inline void load(const c10::BFloat16* from, Floats& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

/// Zero in the lanes before `first`.
HS_INLINED inline void keep_from(std::int64_t first, Floats& values) {
  constexpr Lanes kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes kept = kLane >= static_cast<std::int32_t>(first);
  Lanes bits;
  std::memcpy(&bits, &values, sizeof bits);
  bits &= kept;
  std::memcpy(&values, &bits, sizeof bits);
}

/// The first `count` lanes; the others are zero.
template <class W>
HS_INLINED inline void load_some(const W* from, std::int64_t count, Floats& to) {
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  std::memcpy(&to, lanes, sizeof to);
}

/// Of every 2 * Width lanes: sums of a's lower and upper halves, then of b's.
template <int Width>
HS_INLINED inline void fold(const Floats& a, const Floats& b, Floats& sum) {
  Lanes lower, upper;
  for (int i = 0; i < kLanes; ++i) {
    const int block = i / (2 * Width) * (2 * Width), place = i % (2 * Width);
    lower[i] = place < Width ? block + place : kLanes + block + place - Width;
    upper[i] = lower[i] + Width;
  }
  sum = __builtin_shuffle(a, b, lower) + __builtin_shuffle(a, b, upper);
}

/// Lane i of sums[0] becomes the sum over the lanes of sums[i].
HS_INLINED inline void fold_all(Floats* sums) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) fold<8>(sums[i], sums[i + 8], sums[i]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) fold<4>(sums[i], sums[i + 4], sums[i]);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) fold<2>(sums[i], sums[i + 2], sums[i]);
  fold<1>(sums[0], sums[1], sums[0]);
}

/// Four, or nearly equal parts of what is left.
HS_INLINED inline std::int64_t rows_at_a_time(std::int64_t rows) {
  if (rows >= 8 || rows <= 4) return std::min<std::int64_t>(rows, 4);
  return (rows + 1) / 2;
}

/// Rows rows times Outputs outputs, in Rows * Outputs * Steps <= 16 vectors of partial sums.
template <int Rows, int Outputs, class W>
HS_INLINED inline void transposed_block(const float* x, std::int64_t x_leading, const W* w,
                                        std::int64_t w_leading, std::int64_t inner, float* y,
                                        std::int64_t y_leading) {
  constexpr int kSteps = 16 / (Rows * Outputs);
  Floats sums[16] = {};
  const auto step = [&](int place, const auto& load_x, const auto& load_w) __attribute__((always_inline)) {
    Floats own[Rows], other;
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
  const auto whole = [&](const auto* from, Floats& to) __attribute__((always_inline)) { load(from + k, to); };
  while (k + kSteps * kLanes <= inner) {
#pragma GCC unroll 4
    for (int n = 0; n < Outputs; ++n)
      __builtin_prefetch(reinterpret_cast<const char*>(w + n * w_leading + k) + kAhead);
#pragma GCC unroll 16
    for (int place = 0; place < kSteps; ++place, k += kLanes) step(place, whole, whole);
  }
  for (; k + kLanes <= inner; k += kLanes) step(0, whole, whole);
  if (k < inner && inner >= kLanes) {  // the last vector overlaps the one before it
    const std::int64_t first = kLanes - (inner - k);
    k = inner - kLanes;
    const auto rest = [&](const auto* from, Floats& to) __attribute__((always_inline)) {
      load(from + k, to);
      keep_from(first, to);
    };
    step(0, rest, whole);
  } else if (k < inner) {
    const auto rest = [&](const auto* from, Floats& to) __attribute__((always_inline)) {
      load_some(from + k, inner - k, to);
    };
    step(0, rest, rest);
  }
  fold_all(sums);
  float folded[kLanes];
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

template <int Outputs, class W>
HS_INLINED inline void transposed_rows(const float* x, std::int64_t x_leading, std::int64_t rows, const W* w,
                                       std::int64_t w_leading, std::int64_t inner, float* y,
                                       std::int64_t y_leading) {
  for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
    taken = rows_at_a_time(rows);
    if (taken == 4) transposed_block<4, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
    if (taken == 3) transposed_block<3, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
    if (taken == 2) transposed_block<2, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
    if (taken == 1) transposed_block<1, Outputs>(x, x_leading, w, w_leading, inner, y, y_leading);
  }
}

template <class W>
HS_INLINED inline void transposed_loop(const float* x, std::int64_t x_leading, std::int64_t rows, const W* w,
                                       std::int64_t w_leading, std::int64_t outputs, std::int64_t inner,
                                       float* y, std::int64_t y_leading) {
  std::int64_t n = 0;
  for (; n + 4 <= outputs; n += 4)
    transposed_rows<4>(x, x_leading, rows, w + n * w_leading, w_leading, inner, y + n, y_leading);
  for (; n < outputs; ++n)
    transposed_rows<1>(x, x_leading, rows, w + n * w_leading, w_leading, inner, y + n, y_leading);
}

/// Rows rows times Vectors vectors of columns, or `columns` < 16 of them; y gets those from `first` on.
template <int Rows, int Vectors>
HS_INLINED inline void block(const float* x, std::int64_t x_leading, const float* z, std::int64_t z_leading,
                             std::int64_t first, std::int64_t columns, std::int64_t inner, float* y,
                             std::int64_t y_leading) {
  Floats sums[Rows * Vectors] = {};
  const auto add = [&](const auto& load_z) __attribute__((always_inline)) {
    for (std::int64_t k = 0; k < inner; ++k) {
      Floats row[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load_z(z + k * z_leading + v * kLanes, row[v]);
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) {
        const float factor = x[m * x_leading + k];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[m * Vectors + v] += factor * row[v];
      }
    }
  };
  if (columns == Vectors * kLanes)
    add([](const float* from, Floats& to) __attribute__((always_inline)) { load(from, to); });
  else
    add([&](const float* from, Floats& to) __attribute__((always_inline)) { load_some(from, columns, to); });
  float values[Rows * Vectors * kLanes];
  std::memcpy(values, sums, sizeof values);
  for (int m = 0; m < Rows; ++m)
    for (std::int64_t c = first; c < columns; ++c) y[m * y_leading + c] += values[m * Vectors * kLanes + c];
}

template <int Rows>
HS_INLINED inline void all_columns(const float* x, std::int64_t x_leading, const float* z,
                                   std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                                   std::int64_t y_leading) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes)
    block<Rows, 4>(x, x_leading, z + c, z_leading, 0, 4 * kLanes, inner, y + c, y_leading);
  // The last block overlaps what is done.
  if (const std::int64_t begin = columns - 4 * kLanes; begin >= 0 && c < columns) {
    block<Rows, 4>(x, x_leading, z + begin, z_leading, c - begin, 4 * kLanes, inner, y + begin, y_leading);
    return;
  }
  for (; c + kLanes <= columns; c += kLanes)
    block<Rows, 1>(x, x_leading, z + c, z_leading, 0, kLanes, inner, y + c, y_leading);
  if (c == columns) return;
  const std::int64_t begin = std::max<std::int64_t>(0, columns - kLanes);
  block<Rows, 1>(x, x_leading, z + begin, z_leading, c - begin, columns - begin, inner, y + begin, y_leading);
}

}  // namespace

HS_FOR_EACH_PROCESSOR void add_few_rows_transposed(const float* x, std::int64_t x_leading, std::int64_t rows,
                                                   const float* w, std::int64_t w_leading,
                                                   std::int64_t outputs, std::int64_t inner, float* y,
                                                   std::int64_t y_leading) {
  transposed_loop(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

HS_FOR_EACH_PROCESSOR void add_few_rows_transposed(const float* x, std::int64_t x_leading, std::int64_t rows,
                                                   const c10::BFloat16* w, std::int64_t w_leading,
                                                   std::int64_t outputs, std::int64_t inner, float* y,
                                                   std::int64_t y_leading) {
  transposed_loop(x, x_leading, rows, w, w_leading, outputs, inner, y, y_leading);
}

HS_FOR_EACH_PROCESSOR void add_few_rows(const float* x, std::int64_t x_leading, std::int64_t rows,
                                        const float* z, std::int64_t z_leading, std::int64_t columns,
                                        std::int64_t inner, float* y, std::int64_t y_leading) {
  for (std::int64_t taken; rows > 0; rows -= taken, x += taken * x_leading, y += taken * y_leading) {
    taken = rows_at_a_time(rows);
    if (taken == 4) all_columns<4>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
    if (taken == 3) all_columns<3>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
    if (taken == 2) all_columns<2>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
    if (taken == 1) all_columns<1>(x, x_leading, z, z_leading, columns, inner, y, y_leading);
  }
}

}  // namespace headspan
