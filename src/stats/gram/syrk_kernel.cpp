#include "stats/gram/syrk_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <omp.h>

#include "base/process/cpu_dispatch.h"
#include "base/range.h"
#include "dist/kernels/register_tile.h"
#include "dist/kernels/row_blocks.h"

namespace headspan {
namespace {

/// Tokens of a chunk; the fastest that were tried on an EPYC and a Xeon.
template <class P>
constexpr std::int64_t kDepth = std::is_same_v<P, double> ? 256 : 768;
constexpr std::int64_t kColumns = 2048;   // times kDepth fits the cache that cores share
constexpr std::int64_t kColumnStep = 64;  // a multiple of every tile's columns

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
  using Shape = Tile<Lanes, P>;
  typename Shape::Sums sums;
  prefetch_result<Shape>(c, leading);
  sum_tile<Lanes>(a, b, depth, sums);
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r)
      add_vector<Shape::kLanes>(sums[j][r], c + j * leading + r * Shape::kLanes);
}

/// Rows of an operand: [count, depth], column-major; `origin`: [count] is subtracted from them.
template <class T>
struct Strip {
  const T* values;
  std::int64_t leading, count, depth;
  const double* origin;
};

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
    pack_strip<Tile<Lanes, P>::kRows, precision>(*rows, to);
  }
};

/// The part of a panel that is multiplied at a time: `columns` columns from `column` on, for `tokens` tokens
/// from `token` on.
template <class T>
struct Chunk {
  const PanelOperands<T>* panel;
  PanelOrigin origin;
  Staircase c;
  std::int64_t column, columns, token, tokens;
};

/// Returns how many of `count` columns from `column` on are stored side by side.
template <class T>
HS_INLINED inline std::int64_t neighbours(const PanelOperands<T>& panel, std::int64_t column,
                                          std::int64_t count) {
  return panel.block == panel.distance ? count : std::min(count, panel.block - column % panel.block);
}

template <Precision precision, class T, class P>
struct PackColumns {
  template <int Lanes>
  HS_INLINED static void run(const Chunk<T>* chunk, P* to) {
    constexpr std::int64_t kWidth = Tile<Lanes, P>::kColumns;
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

/// A packed block of rows and the packed columns by which it is multiplied. `c` is the part of the whole
/// matrix to which the product is added. It begins `above` rows below the top, from which c.first_row counts.
template <class P>
struct Block {
  const P* rows;
  const P* columns;
  std::int64_t depth;
  Staircase c;
  std::int64_t above;

  std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, c.first_row[column] - above);
  }
};

/// Adds a tile that the staircase or an edge cuts.
template <int Lanes, class P>
HS_INLINED inline void add_cut_tile(const P* a, const P* b, const Block<P>& block, std::int64_t row,
                                    std::int64_t column) {
  using Shape = Tile<Lanes, P>;
  const Staircase& c = block.c;
  alignas(64) double sums[Shape::kRows * Shape::kColumns] = {};
  add_tile<Lanes, P>(a, b, block.depth, sums, Shape::kRows);
  const std::int64_t last = std::min(row + Shape::kRows, c.rows);
  for (std::int64_t j = 0; j < Shape::kColumns && column + j < c.columns; ++j)
    for (std::int64_t i = std::max(row, block.first_row(column + j)); i < last; ++i)
      c.values[i + (column + j) * c.leading] += sums[i - row + j * Shape::kRows];
}

template <class P>
struct AddBlock {
  template <int Lanes>
  HS_INLINED static void run(const Block<P>* block) {
    using Shape = Tile<Lanes, P>;
    const Staircase& c = block->c;
    const std::int64_t depth = block->depth;
    for (std::int64_t column = 0; column < c.columns; column += Shape::kColumns) {
      const std::int64_t end = column + Shape::kColumns, first = block->first_row(column);
      const std::int64_t whole_from = block->first_row(std::min(end, c.columns) - 1);
      const P* const b = block->columns + column * depth;
      for (std::int64_t row = first / Shape::kRows * Shape::kRows; row < c.rows; row += Shape::kRows) {
        const P* const a = block->rows + row * depth;
        if (end > c.columns || row < whole_from || row + Shape::kRows > c.rows)
          add_cut_tile<Lanes, P>(a, b, *block, row, column);
        else
          add_tile<Lanes, P>(a, b, depth, c.values + row + column * c.leading, c.leading);
      }
    }
  }
};

/// Packs columns; called by all threads of a parallel region, which take steps in turn and go on when none is
/// left.
template <Precision precision, class T, class P>
void pack_columns(int lanes, const Chunk<T>& chunk, P* to) {
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t first = 0; first < chunk.columns; first += kColumnStep) {
    Chunk<T> step = chunk;
    step.column += first;
    step.columns = std::min(kColumnStep, chunk.columns - first);
    run_with<PackColumns<precision, T, P>>(lanes, &step, to + first * chunk.tokens);
  }
}

/// Adds blocks of rows; called by all threads of a parallel region, which take blocks in turn and go on when
/// none is left. `packed`: room of this thread.
template <Precision precision, class T, class P>
void add_blocks(int lanes, const Chunk<T>& chunk, const P* columns, P* packed) {
  const PanelOperands<T>& panel = *chunk.panel;
  const Staircase& c = chunk.c;
  const std::vector<Range> blocks = row_blocks(c.first_row[chunk.column], c.rows, omp_get_num_threads());
#pragma omp for schedule(dynamic) nowait
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [row, count] = blocks[i];
    const Strip<T> rows{panel.rows + row + chunk.token * panel.leading_rows, panel.leading_rows, count,
                        chunk.tokens, chunk.origin.rows + row};
    run_with<PackRows<precision, T, P>>(lanes, &rows, packed);
    const Block<P> block{packed,
                         columns,
                         chunk.tokens,
                         {c.values + row + chunk.column * c.leading, c.leading, count, chunk.columns,
                          c.first_row + chunk.column},
                         row};
    run_with<AddBlock<P>>(lanes, &block);
  }
}

/// Returns the tokens of a chunk if `tokens` are cut into chunks of nearly the same length.
template <class P>
std::int64_t even_depth(std::int64_t tokens) {
  constexpr std::int64_t kStep = 16;
  const std::int64_t chunks = std::max<std::int64_t>(1, (tokens + kDepth<P> - 1) / kDepth<P>);
  return std::min(kDepth<P>, ((tokens + chunks - 1) / chunks + kStep - 1) / kStep * kStep);
}

/// Returns the chunks of a panel, of at most `depth` tokens, that have rows on or below the staircase.
template <class T>
std::vector<Chunk<T>> chunks_of(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
                                std::int64_t depth) {
  std::vector<Chunk<T>> chunks;
  for (std::int64_t column = 0; column < c.columns && c.first_row[column] < c.rows; column += kColumns)
    for (std::int64_t token = 0; token < panel.tokens; token += depth)
      chunks.push_back({&panel, origin, c, column, std::min(kColumns, c.columns - column), token,
                        std::min(depth, panel.tokens - token)});
  return chunks;
}

/// `columns` and `rows`: where operands are packed, [2] for this chunk and the next one, and by thread.
template <Precision precision, class T, class P>
void add_chunks(int lanes, const std::vector<Chunk<T>>& chunks, LargeArray<P>* columns,
                std::vector<LargeArray<P>>& rows, const std::function<void()>& progress) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    P* const packed = columns[i % 2].data();
    P* const next = columns[(i + 1) % 2].data();
#pragma omp parallel
    {
      if (i == 0) {
        pack_columns<precision>(lanes, chunks[i], packed);
#pragma omp barrier
      }
      P* const packed_rows = rows[static_cast<std::size_t>(omp_get_thread_num())].data();
      add_blocks<precision>(lanes, chunks[i], packed, packed_rows);
      // Threads for which no block is left pack the next chunk meanwhile.
      if (i + 1 < chunks.size()) pack_columns<precision>(lanes, chunks[i + 1], next);
    }
    progress();
  }
}

}  // namespace

template <class P>
template <class T>
void SyrkKernel<P>::add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
                        const std::function<void()>& progress) {
  const std::int64_t steps = (std::min(kColumns, c.columns) + kColumnStep - 1) / kColumnStep;
  const std::int64_t depth = even_depth<P>(panel.tokens);
  for (LargeArray<P>& columns : columns_) columns.reserve(steps * kColumnStep * depth);
  rows_.resize(static_cast<std::size_t>(omp_get_max_threads()));
  for (LargeArray<P>& rows : rows_) rows.reserve(kMostBlockRows * depth);
  const std::vector<Chunk<T>> chunks = chunks_of(panel, origin, c, depth);
  with_precision<P>(precision_, [&](auto precision) {
    add_chunks<decltype(precision)::value>(lanes_, chunks, columns_, rows_, progress);
  });
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
