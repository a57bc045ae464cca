#include "stats/gram/syrk_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/process/cpu_dispatch.h"
#include "base/range.h"
#include "dist/kernels/register_tile.h"

namespace headspan {
namespace {

/// Tokens of a chunk; the fastest that were tried on an EPYC and a Xeon.
template <class P>
constexpr std::int64_t kDepth = std::is_same_v<P, double> ? 256 : 768;

/// Adds values to c, at any address.
template <int Count, class Values>
HS_INLINED inline void add_vector(const Values& values, double* c) {
  typedef double Doubles __attribute__((vector_size(8 * Count)));
  Doubles sums;
  std::memcpy(&sums, c, sizeof sums);
  sums += __builtin_convertvector(values, Doubles);
  std::memcpy(c, &sums, sizeof sums);
}

/// Adds c += a b^T for a tile of c, column-major. a: [Tile::kRows, depth] and b: [Tile::kColumns, depth],
/// column-major without gaps, aligned to a vector.
template <int Lanes, class P>
HS_INLINED inline void add_tile(const P* a, const P* b, std::int64_t depth, double* c, std::int64_t leading) {
  using Shape = RegisterTile<Lanes, P>;
  typename Shape::Sums sums;
  prefetch_result<Shape>(c, leading);
  sum_tile<Lanes>(a, b, depth, sums);
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r)
      add_vector<Shape::kLanes>(sums[j][r], c + j * leading + r * Shape::kLanes);
}

/// Sets out[k] to what is multiplied in place of values[k], for Width values.
template <int Width, Precision precision, class T, class P>
HS_INLINED inline void pack_values(const T* __restrict values, const double* __restrict origin,
                                   P* __restrict out) {
  for (int k = 0; k < Width; ++k)
    out[k] = static_cast<P>(rounded<precision>(static_cast<double>(values[k]) - origin[k]));
}

/// The same for the first `count` of Width values; sets the others to 0.
template <int Width, Precision precision, class T, class P>
HS_INLINED inline void pack_some_values(const T* values, const double* origin, std::int64_t count, P* out) {
  for (std::int64_t k = 0; k < count; ++k) pack_values<1, precision>(values + k, origin + k, out + k);
  std::fill(out + count, out + Width, P(0));
}

/// Packs some tokens of the panel that begins with row i of a strip.
template <int Width, Precision precision, class T, class P>
HS_INLINED inline void pack_tokens(const Strip<T>& from, std::int64_t i, const Range& tokens, P* to) {
  const std::int64_t rows = std::min<std::int64_t>(Width, from.count - i);
  const T* values = from.values + i + tokens.first * from.leading;
  to += i * from.depth + tokens.first * Width;
  for (std::int64_t t = 0; t < tokens.count; ++t, values += from.leading, to += Width)
    if (rows == Width)
      pack_values<Width, precision>(values, from.origin + i, to);
    else
      pack_some_values<Width, precision>(values, from.origin + i, rows, to);
}

/// Cuts a strip into panels of Width rows, one after another, each [Width, depth], with zeros below the last
/// row. A few tokens at a time, so that cache lines that two panels share stay in the cache.
template <int Width, Precision precision, class T, class P>
HS_INLINED inline void pack_strip(const Strip<T>& from, P* to) {
  constexpr std::int64_t kTokens = 8;
  for (std::int64_t first = 0; first < from.depth; first += kTokens)
    for (std::int64_t i = 0; i < from.count; i += Width)
      pack_tokens<Width, precision>(from, i, {first, std::min(kTokens, from.depth - first)}, to);
}

template <Precision precision, class T, class P>
struct PackRows {
  template <int Lanes>
  HS_INLINED static void run(const Strip<T>* rows, P* to) {
    pack_strip<RegisterTile<Lanes, P>::kRows, precision>(*rows, to);
  }
};

template <Precision precision, class T, class P>
struct PackColumns {
  template <int Lanes>
  HS_INLINED static void run(const Chunk<T>* chunk, P* to) {
    constexpr std::int64_t kWidth = RegisterTile<Lanes, P>::kColumns;
    const PanelOperands<T>& panel = *chunk->panel;
    const T* const values = panel.columns + chunk->token * panel.leading_columns;
    for (std::int64_t i = 0; i < chunk->columns;) {
      const std::int64_t column = chunk->column + i, left = chunk->columns - i;
      const double* const origin = chunk->origin.columns + column;
      P* const out = to + i * chunk->tokens;
      const std::int64_t side_by_side = neighbours(panel, column, left);
      if (side_by_side == left || side_by_side >= kWidth) {
        const std::int64_t count = side_by_side == left ? left : side_by_side / kWidth * kWidth;
        pack_strip<kWidth, precision>(
            Strip<T>{values + panel.offset(column), panel.leading_columns, count, chunk->tokens, origin},
            out);
        i += count;
      } else {
        pack_scattered<kWidth>(*chunk, column, std::min(kWidth, left), origin, out);
        i += kWidth;
      }
    }
  }

  /// Packs one panel of columns that are not all side by side.
  template <std::int64_t kWidth>
  HS_INLINED static void pack_scattered(const Chunk<T>& chunk, std::int64_t column, std::int64_t width,
                                        const double* origin, P* to) {
    const PanelOperands<T>& panel = *chunk.panel;
    const T* values = panel.columns + chunk.token * panel.leading_columns;
    std::fill(to, to + kWidth * chunk.tokens, P(0));
    for (std::int64_t t = 0; t < chunk.tokens; ++t, to += kWidth, values += panel.leading_columns)
      for (std::int64_t j = 0; j < width; ++j)
        pack_values<1, precision>(values + panel.offset(column + j), origin + j, to + j);
  }
};

template <class P>
struct AddBlock {
  template <int Lanes>
  HS_INLINED static void run(const ResultBlock* block, const P* rows, const P* columns) {
    using Shape = RegisterTile<Lanes, P>;
    const std::int64_t depth = block->depth;
    for_tiles<Shape::kRows, Shape::kColumns>(
        *block, [=](std::int64_t row, std::int64_t column, double* c, std::int64_t leading) HS_INLINED {
          add_tile<Lanes, P>(rows + row * depth, columns + column * depth, depth, c, leading);
        });
  }
};

}  // namespace

template <class P>
template <class T>
void SyrkKernel<P>::Packing::pack_columns(const Chunk<T>& chunk, std::int64_t first, Packed& to) const {
  with_precision<P>(precision, [&](auto constant) {
    run_with<PackColumns<decltype(constant)::value, T, P>>(lanes, &chunk, to.data() + first * chunk.tokens);
  });
}

template <class P>
template <class T>
void SyrkKernel<P>::Packing::pack_rows(const Strip<T>& rows, Packed& to) const {
  with_precision<P>(precision, [&](auto constant) {
    run_with<PackRows<decltype(constant)::value, T, P>>(lanes, &rows, to.data());
  });
}

template <class P>
void SyrkKernel<P>::Packing::add(const Packed& rows, const Packed& columns, const ResultBlock& block) const {
  run_with<AddBlock<P>>(lanes, &block, rows.data(), columns.data());
}

template <class P>
template <class T>
void SyrkKernel<P>::add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
                        const std::function<void()>& progress) {
  product_.add(panel, origin, c, kDepth<P>, progress);
}

template class SyrkKernel<double>;
template class SyrkKernel<float>;
template void SyrkKernel<double>::add(const PanelOperands<double>&, const PanelOrigin&, const Staircase&,
                                      const std::function<void()>&);
template void SyrkKernel<double>::add(const PanelOperands<float>&, const PanelOrigin&, const Staircase&,
                                      const std::function<void()>&);
template void SyrkKernel<float>::add(const PanelOperands<double>&, const PanelOrigin&, const Staircase&,
                                     const std::function<void()>&);
template void SyrkKernel<float>::add(const PanelOperands<float>&, const PanelOrigin&, const Staircase&,
                                     const std::function<void()>&);

}  // namespace headspan
