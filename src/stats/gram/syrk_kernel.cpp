#include "stats/gram/syrk_kernel.h"

#include <algorithm>
#include <cstring>

#include <omp.h>

#include "base/process/cpu_dispatch.h"

namespace headspan {
namespace {

constexpr std::int64_t kDepth = 256;      // tokens; the fastest combination that was tried on an EPYC
constexpr std::int64_t kColumns = 2048;   // times kDepth fits the cache that cores share
constexpr std::int64_t kRows = 240;       // times kDepth fits a core's second-level cache
constexpr std::int64_t kColumnStep = 64;  // a multiple of every tile's columns
constexpr std::int64_t kRowStep = 24;     // a multiple of every tile's rows
constexpr std::int64_t kFewestRows = 2 * kRowStep;
constexpr std::int64_t kBlocksPerThread = 4;

/// The shape of a tile of c that is summed in registers. Of AVX-512's 32 vectors 24 hold sums; of the 16 of
/// AVX2 and SSE, 12 and 8.
template <int Lanes>
struct Tile {
  static constexpr int kLanes = Lanes / 2;  // of 8 bytes
  static constexpr int kVectors = Lanes == 4 ? 2 : 3;
  static constexpr int kRows = kVectors * kLanes;
  static constexpr int kColumns = Lanes == 16 ? 8 : 4;
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));  // `using` would lose the size
};

/// Adds c += a b^T for a tile of c, column-major. a: [Tile::kRows, depth] and b: [Tile::kColumns, depth],
/// column-major without gaps, aligned to a vector.
template <int Lanes>
HS_INLINED inline void add_tile(const double* a, const double* b, std::int64_t depth, double* c,
                                std::int64_t leading) {
  using T = Tile<Lanes>;
  typename T::Doubles sums[T::kColumns][T::kVectors] = {};
#pragma GCC unroll 8
  for (int j = 0; j < T::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < T::kVectors; ++r) __builtin_prefetch(c + j * leading + r * T::kLanes, 1);
  for (std::int64_t t = 0; t < depth; ++t, a += T::kRows, b += T::kColumns) {
    typename T::Doubles x[T::kVectors];
#pragma GCC unroll 3
    for (int r = 0; r < T::kVectors; ++r)
      x[r] = *reinterpret_cast<const typename T::Doubles*>(a + r * T::kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < T::kColumns; ++j) {
      const typename T::Doubles y = b[j] - typename T::Doubles{};
#pragma GCC unroll 3
      for (int r = 0; r < T::kVectors; ++r) sums[j][r] += x[r] * y;
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < T::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < T::kVectors; ++r) {
      double* const to = c + j * leading + r * T::kLanes;  // at any address
      typename T::Doubles before;
      std::memcpy(&before, to, sizeof before);
      before += sums[j][r];
      std::memcpy(to, &before, sizeof before);
    }
}

/// Rows of an operand: [count, depth], column-major.
struct Strip {
  const double* values;
  std::int64_t leading, count, depth;
};

/// Cuts a strip into panels of Width rows, one after another, each [Width, depth], with zeros below the last
/// row.
template <int Width>
HS_INLINED inline void pack_strip(const Strip& from, double* to) {
  for (std::int64_t i = 0; i < from.count; i += Width) {
    const std::int64_t rows = std::min<std::int64_t>(Width, from.count - i);
    for (std::int64_t t = 0; t < from.depth; ++t, to += Width) {
      const double* const values = from.values + i + t * from.leading;
      if (rows == Width)
        std::copy(values, values + Width, to);
      else
        std::fill(std::copy(values, values + rows, to), to + Width, 0.0);
    }
  }
}

/// The part of a panel that is multiplied at a time: `columns` columns from `column` on, for `tokens` tokens
/// from `token` on.
struct Chunk {
  const PanelOperands<double>* panel;
  Staircase c;
  std::int64_t column, columns, token, tokens;
};

struct PackColumns {
  template <int Lanes>
  HS_INLINED static void run(const Chunk* chunk, double* to) {
    constexpr int kWidth = Tile<Lanes>::kColumns;
    const PanelOperands<double>& panel = *chunk->panel;
    const double* const values = panel.columns + chunk->token * panel.leading_columns;
    for (std::int64_t i = 0; i < chunk->columns; i += kWidth, to += kWidth * chunk->tokens) {
      const std::int64_t width = std::min<std::int64_t>(kWidth, chunk->columns - i);
      std::int64_t offsets[kWidth];
      for (std::int64_t j = 0; j < width; ++j) offsets[j] = panel.offset(chunk->column + i + j);
      if (offsets[width - 1] == offsets[0] + width - 1)
        pack_strip<kWidth>({values + offsets[0], panel.leading_columns, width, chunk->tokens}, to);
      else
        for (std::int64_t t = 0; t < chunk->tokens; ++t)
          for (std::int64_t j = 0; j < kWidth; ++j)
            to[t * kWidth + j] = j < width ? values[offsets[j] + t * panel.leading_columns] : 0;
    }
  }
};

/// A block of rows and the packed columns by which it is multiplied. `c` is the part of the whole matrix to
/// which the product is added. It begins `above` rows below the top, from which c.first_row counts.
struct Block {
  Strip rows;
  double* packed;  // room for the rows
  const double* columns;
  Staircase c;
  std::int64_t above;

  std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, c.first_row[column] - above);
  }
};

/// Adds a tile that the staircase or an edge cuts.
template <int Lanes>
HS_INLINED inline void add_cut_tile(const double* a, const double* b, const Block& block, std::int64_t row,
                                    std::int64_t column) {
  using T = Tile<Lanes>;
  const Staircase& c = block.c;
  alignas(64) double sums[T::kRows * T::kColumns] = {};
  add_tile<Lanes>(a, b, block.rows.depth, sums, T::kRows);
  const std::int64_t last = std::min(row + T::kRows, c.rows);
  for (std::int64_t j = 0; j < T::kColumns && column + j < c.columns; ++j)
    for (std::int64_t i = std::max(row, block.first_row(column + j)); i < last; ++i)
      c.values[i + (column + j) * c.leading] += sums[i - row + j * T::kRows];
}

struct AddBlock {
  template <int Lanes>
  HS_INLINED static void run(const Block* block) {
    using T = Tile<Lanes>;
    const Staircase& c = block->c;
    const std::int64_t depth = block->rows.depth;
    pack_strip<T::kRows>(block->rows, block->packed);
    for (std::int64_t column = 0; column < c.columns; column += T::kColumns) {
      const std::int64_t end = column + T::kColumns, first = block->first_row(column);
      const std::int64_t whole_from = block->first_row(std::min(end, c.columns) - 1);
      const double* const b = block->columns + column * depth;
      for (std::int64_t row = first / T::kRows * T::kRows; row < c.rows; row += T::kRows) {
        const double* const a = block->packed + row * depth;
        if (end > c.columns || row < whole_from || row + T::kRows > c.rows)
          add_cut_tile<Lanes>(a, b, *block, row, column);
        else
          add_tile<Lanes>(a, b, depth, c.values + row + column * c.leading, c.leading);
      }
    }
  }
};

/// Returns the rows per block: few enough for every thread to get some.
std::int64_t rows_per_block(std::int64_t rows, std::int64_t threads) {
  const std::int64_t fair = (rows + threads * kBlocksPerThread - 1) / (threads * kBlocksPerThread);
  return std::clamp((fair + kRowStep - 1) / kRowStep * kRowStep, kFewestRows, kRows);
}

/// Packs the columns; called by all threads of a parallel region, which share the work. Returns when all are
/// done.
void pack_columns(int lanes, const Chunk& chunk, double* to) {
#pragma omp for schedule(static)
  for (std::int64_t first = 0; first < chunk.columns; first += kColumnStep) {
    Chunk step = chunk;
    step.column += first;
    step.columns = std::min(kColumnStep, chunk.columns - first);
    run_with<PackColumns>(lanes, &step, to + first * chunk.tokens);
  }
}

/// Adds blocks of rows; called by all threads of a parallel region, which take blocks in turn. `packed`: room
/// of this thread.
void add_blocks(int lanes, const Chunk& chunk, const double* columns, double* packed) {
  const PanelOperands<double>& panel = *chunk.panel;
  const Staircase& c = chunk.c;
  const std::int64_t top = c.first_row[chunk.column];
  const std::int64_t height = rows_per_block(c.rows - top, omp_get_num_threads());
#pragma omp for schedule(dynamic)
  for (std::int64_t row = top; row < c.rows; row += height) {
    const std::int64_t rows = std::min(height, c.rows - row);
    const Block block{
        {panel.rows + row + chunk.token * panel.leading_rows, panel.leading_rows, rows, chunk.tokens},
        packed,
        columns,
        {c.values + row + chunk.column * c.leading, c.leading, rows, chunk.columns,
         c.first_row + chunk.column},
        row};
    run_with<AddBlock>(lanes, &block);
  }
}

}  // namespace

void SyrkKernel::add(const PanelOperands<double>& panel, const Staircase& c,
                     const std::function<void()>& progress) {
  const std::int64_t steps = (std::min(kColumns, c.columns) + kColumnStep - 1) / kColumnStep;
  columns_.reserve(steps * kColumnStep * std::min(kDepth, panel.tokens));
  rows_.resize(static_cast<std::size_t>(omp_get_max_threads()));
  for (auto& rows : rows_) rows.reserve(kRows * std::min(kDepth, panel.tokens));
  for (std::int64_t column = 0; column < c.columns && c.first_row[column] < c.rows; column += kColumns)
    for (std::int64_t token = 0; token < panel.tokens; token += kDepth) {
      const Chunk chunk{&panel, c,
                        column, std::min(kColumns, c.columns - column),
                        token,  std::min(kDepth, panel.tokens - token)};
#pragma omp parallel
      {
        pack_columns(lanes_, chunk, columns_.data());
        add_blocks(lanes_, chunk, columns_.data(),
                   rows_[static_cast<std::size_t>(omp_get_thread_num())].data());
      }
      progress();
    }
}

}  // namespace headspan
