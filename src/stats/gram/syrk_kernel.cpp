#include "stats/gram/syrk_kernel.h"

#include <algorithm>
#include <cstring>

#include <omp.h>

#include "base/process/cpu_dispatch.h"

namespace headspan {
namespace {

/// Tokens of a chunk; the fastest that was tried on an EPYC.
template <class T>
constexpr std::int64_t kDepth = 2048 / sizeof(T);
constexpr std::int64_t kColumns = 2048;   // times kDepth fits the cache that cores share
constexpr std::int64_t kRows = 240;       // times kDepth fits a core's second-level cache
constexpr std::int64_t kColumnStep = 64;  // a multiple of every tile's columns
constexpr std::int64_t kRowStep = 48;     // a multiple of every tile's rows
constexpr std::int64_t kFewestRows = kRowStep;
constexpr std::int64_t kBlocksPerThread = 8;

/// The shape of a tile of c that is summed in registers. Of AVX-512's 32 vectors 24 hold sums; of the 16 of
/// AVX2 and SSE, 12 and 8.
template <int Lanes, class T>
struct Tile {
  static constexpr int kLanes = Lanes * 4 / static_cast<int>(sizeof(T));
  static constexpr int kVectors = Lanes == 4 ? 2 : 3;
  static constexpr int kRows = kVectors * kLanes;
  static constexpr int kColumns = Lanes == 16 ? 8 : 4;
  typedef T Values __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
};

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
template <int Lanes, class T>
HS_INLINED inline void add_tile(const T* a, const T* b, std::int64_t depth, double* c, std::int64_t leading) {
  using Shape = Tile<Lanes, T>;
  using Values = typename Shape::Values;
  Values sums[Shape::kColumns][Shape::kVectors] = {};
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 6
    for (int i = 0; i < Shape::kRows; i += 8) __builtin_prefetch(c + j * leading + i, 1);
  for (std::int64_t t = 0; t < depth; ++t, a += Shape::kRows, b += Shape::kColumns) {
    Values x[Shape::kVectors];
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r) x[r] = *reinterpret_cast<const Values*>(a + r * Shape::kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < Shape::kColumns; ++j) {
      const Values y = b[j] - Values{};
#pragma GCC unroll 3
      for (int r = 0; r < Shape::kVectors; ++r) sums[j][r] += x[r] * y;
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r)
      add_vector<Shape::kLanes>(sums[j][r], c + j * leading + r * Shape::kLanes);
}

/// Rows of an operand: [count, depth], column-major.
template <class T>
struct Strip {
  const T* values;
  std::int64_t leading, count, depth;
};

/// Cuts a strip into panels of Width rows, one after another, each [Width, depth], with zeros below the last
/// row.
template <int Width, class T>
HS_INLINED inline void pack_strip(const Strip<T>& from, T* to) {
  for (std::int64_t i = 0; i < from.count; i += Width) {
    const std::int64_t rows = std::min<std::int64_t>(Width, from.count - i);
    for (std::int64_t t = 0; t < from.depth; ++t, to += Width) {
      const T* const values = from.values + i + t * from.leading;
      if (rows == Width)
        std::copy(values, values + Width, to);
      else
        std::fill(std::copy(values, values + rows, to), to + Width, T(0));
    }
  }
}

/// The part of a panel that is multiplied at a time: `columns` columns from `column` on, for `tokens` tokens
/// from `token` on.
template <class T>
struct Chunk {
  const PanelOperands<T>* panel;
  Staircase c;
  std::int64_t column, columns, token, tokens;
};

template <class T>
struct PackColumns {
  template <int Lanes>
  HS_INLINED static void run(const Chunk<T>* chunk, T* to) {
    constexpr int kWidth = Tile<Lanes, T>::kColumns;
    const PanelOperands<T>& panel = *chunk->panel;
    const T* const values = panel.columns + chunk->token * panel.leading_columns;
    for (std::int64_t i = 0; i < chunk->columns; i += kWidth, to += kWidth * chunk->tokens) {
      const std::int64_t width = std::min<std::int64_t>(kWidth, chunk->columns - i);
      std::int64_t offsets[kWidth];
      for (std::int64_t j = 0; j < width; ++j) offsets[j] = panel.offset(chunk->column + i + j);
      if (offsets[width - 1] == offsets[0] + width - 1)
        pack_strip<kWidth, T>({values + offsets[0], panel.leading_columns, width, chunk->tokens}, to);
      else
        for (std::int64_t t = 0; t < chunk->tokens; ++t)
          for (std::int64_t j = 0; j < kWidth; ++j)
            to[t * kWidth + j] = j < width ? values[offsets[j] + t * panel.leading_columns] : 0;
    }
  }
};

/// A block of rows and the packed columns by which it is multiplied. `c` is the part of the whole matrix to
/// which the product is added. It begins `above` rows below the top, from which c.first_row counts.
template <class T>
struct Block {
  Strip<T> rows;
  T* packed;  // room for the rows
  const T* columns;
  Staircase c;
  std::int64_t above;

  std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, c.first_row[column] - above);
  }
};

/// Adds a tile that the staircase or an edge cuts.
template <int Lanes, class T>
HS_INLINED inline void add_cut_tile(const T* a, const T* b, const Block<T>& block, std::int64_t row,
                                    std::int64_t column) {
  using Shape = Tile<Lanes, T>;
  const Staircase& c = block.c;
  alignas(64) double sums[Shape::kRows * Shape::kColumns] = {};
  add_tile<Lanes, T>(a, b, block.rows.depth, sums, Shape::kRows);
  const std::int64_t last = std::min(row + Shape::kRows, c.rows);
  for (std::int64_t j = 0; j < Shape::kColumns && column + j < c.columns; ++j)
    for (std::int64_t i = std::max(row, block.first_row(column + j)); i < last; ++i)
      c.values[i + (column + j) * c.leading] += sums[i - row + j * Shape::kRows];
}

template <class T>
struct AddBlock {
  template <int Lanes>
  HS_INLINED static void run(const Block<T>* block) {
    using Shape = Tile<Lanes, T>;
    const Staircase& c = block->c;
    const std::int64_t depth = block->rows.depth;
    pack_strip<Shape::kRows, T>(block->rows, block->packed);
    for (std::int64_t column = 0; column < c.columns; column += Shape::kColumns) {
      const std::int64_t end = column + Shape::kColumns, first = block->first_row(column);
      const std::int64_t whole_from = block->first_row(std::min(end, c.columns) - 1);
      const T* const b = block->columns + column * depth;
      for (std::int64_t row = first / Shape::kRows * Shape::kRows; row < c.rows; row += Shape::kRows) {
        const T* const a = block->packed + row * depth;
        if (end > c.columns || row < whole_from || row + Shape::kRows > c.rows)
          add_cut_tile<Lanes, T>(a, b, *block, row, column);
        else
          add_tile<Lanes, T>(a, b, depth, c.values + row + column * c.leading, c.leading);
      }
    }
  }
};

/// Returns the rows per block: few enough for every thread to get some.
std::int64_t rows_per_block(std::int64_t rows, std::int64_t threads) {
  const std::int64_t fair = (rows + threads * kBlocksPerThread - 1) / (threads * kBlocksPerThread);
  return std::clamp((fair + kRowStep - 1) / kRowStep * kRowStep, kFewestRows, kRows);
}

/// Packs columns; called by all threads of a parallel region, which take steps in turn and go on when none is
/// left.
template <class T>
void pack_columns(int lanes, const Chunk<T>& chunk, T* to) {
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t first = 0; first < chunk.columns; first += kColumnStep) {
    Chunk<T> step = chunk;
    step.column += first;
    step.columns = std::min(kColumnStep, chunk.columns - first);
    run_with<PackColumns<T>>(lanes, &step, to + first * chunk.tokens);
  }
}

/// Adds blocks of rows; called by all threads of a parallel region, which take blocks in turn and go on when
/// none is left. The blocks at the bottom, which have the most elements below the staircase, come first.
/// `packed`: room of this thread.
template <class T>
void add_blocks(int lanes, const Chunk<T>& chunk, const T* columns, T* packed) {
  const PanelOperands<T>& panel = *chunk.panel;
  const Staircase& c = chunk.c;
  const std::int64_t top = c.first_row[chunk.column];
  const std::int64_t height = rows_per_block(c.rows - top, omp_get_num_threads());
#pragma omp for schedule(dynamic) nowait
  for (std::int64_t end = c.rows; end > top; end -= height) {
    const std::int64_t row = std::max(top, end - height);
    const Block<T> block{
        {panel.rows + row + chunk.token * panel.leading_rows, panel.leading_rows, end - row, chunk.tokens},
        packed,
        columns,
        {c.values + row + chunk.column * c.leading, c.leading, end - row, chunk.columns,
         c.first_row + chunk.column},
        row};
    run_with<AddBlock<T>>(lanes, &block);
  }
}

/// Returns the chunks of a panel that have rows on or below the staircase.
template <class T>
std::vector<Chunk<T>> chunks_of(const PanelOperands<T>& panel, const Staircase& c) {
  std::vector<Chunk<T>> chunks;
  for (std::int64_t column = 0; column < c.columns && c.first_row[column] < c.rows; column += kColumns)
    for (std::int64_t token = 0; token < panel.tokens; token += kDepth<T>)
      chunks.push_back({&panel, c, column, std::min(kColumns, c.columns - column), token,
                        std::min(kDepth<T>, panel.tokens - token)});
  return chunks;
}

}  // namespace

template <class T>
void SyrkKernel<T>::add(const PanelOperands<T>& panel, const Staircase& c,
                        const std::function<void()>& progress) {
  const std::int64_t steps = (std::min(kColumns, c.columns) + kColumnStep - 1) / kColumnStep;
  const std::int64_t depth = std::min(kDepth<T>, panel.tokens);
  for (LargeArray<T>& columns : columns_) columns.reserve(steps * kColumnStep * depth);
  rows_.resize(static_cast<std::size_t>(omp_get_max_threads()));
  for (LargeArray<T>& rows : rows_) rows.reserve(kRows * depth);
  const std::vector<Chunk<T>> chunks = chunks_of(panel, c);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    T* const packed = columns_[i % 2].data();
    T* const next = columns_[(i + 1) % 2].data();
#pragma omp parallel
    {
      if (i == 0) {
        pack_columns(lanes_, chunks[i], packed);
#pragma omp barrier
      }
      add_blocks(lanes_, chunks[i], packed, rows_[static_cast<std::size_t>(omp_get_thread_num())].data());
      // Threads for which no block is left pack the next chunk meanwhile.
      if (i + 1 < chunks.size()) pack_columns(lanes_, chunks[i + 1], next);
    }
    progress();
  }
}

template class SyrkKernel<double>;
template class SyrkKernel<float>;

}  // namespace headspan
