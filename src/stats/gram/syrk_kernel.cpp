#include "stats/gram/syrk_kernel.h"

#include <algorithm>
#include <cstring>

#include <omp.h>

#include "base/process/cpu_dispatch.h"

namespace headspan {
namespace {

constexpr std::int64_t kDepth = 256;      // tokens; with what follows the fastest of some tried on an EPYC
constexpr std::int64_t kColumns = 2048;   // with kDepth in the cache that cores share
constexpr std::int64_t kRows = 240;       // with kDepth in a core's second-level cache
constexpr std::int64_t kColumnStep = 64;  // a multiple of every tile's columns
constexpr std::int64_t kRowStep = 24;     // a multiple of every tile's rows
constexpr std::int64_t kFewestRows = 2 * kRowStep;
constexpr std::int64_t kBlocksOfAThread = 4;

/// A tile of c that the processor holds in vectors: R vectors of rows times `columns`. AVX-512 has 32
/// vectors, of which 24 hold sums; the others 16, of which 12 or 8 do.
template <int Lanes>
struct Tile {
  static constexpr int kLanes = Lanes / 2;  // of 8 bytes
  static constexpr int kVectors = Lanes == 4 ? 2 : 3;
  static constexpr int kRows = kVectors * kLanes;
  static constexpr int kColumns = Lanes == 16 ? 8 : 4;
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));  // `using` would lose the size
};

/// c += a b^T. a: [Tile::kRows, depth] and b: [Tile::kColumns, depth], column-major without gaps, aligned to
/// a vector; c: column-major.
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

/// As many rows of an operand: [count, depth], column-major.
struct Strip {
  const double* values;
  std::int64_t leading, count, depth;
};

/// Cuts a strip into pieces of Width rows, one after the other, each [Width, depth]; zeros below the last
/// row.
template <int Width>
HS_INLINED inline void pack_strip(const Strip& from, double* to) {
  for (std::int64_t i = 0; i < from.count; i += Width) {
    const std::int64_t own = std::min<std::int64_t>(Width, from.count - i);
    for (std::int64_t t = 0; t < from.depth; ++t, to += Width) {
      const double* const values = from.values + i + t * from.leading;
      if (own == Width)
        std::copy(values, values + Width, to);
      else
        std::fill(std::copy(values, values + own, to), to + Width, 0.0);
    }
  }
}

/// Columns of a panel, from `first` on, for tokens from `token` on.
struct ColumnStrip {
  const PanelOperands<double>* panel;
  std::int64_t first, count, token, tokens;
};

struct PackColumns {
  template <int Lanes>
  HS_INLINED static void run(const ColumnStrip* strip, double* to) {
    constexpr int kWidth = Tile<Lanes>::kColumns;
    const PanelOperands<double>& panel = *strip->panel;
    const double* const values = panel.columns + strip->token * panel.leading_columns;
    for (std::int64_t i = 0; i < strip->count; i += kWidth, to += kWidth * strip->tokens) {
      const std::int64_t own = std::min<std::int64_t>(kWidth, strip->count - i);
      std::int64_t places[kWidth];
      for (std::int64_t j = 0; j < own; ++j) places[j] = panel.offset(strip->first + i + j);
      if (places[own - 1] == places[0] + own - 1)
        pack_strip<kWidth>({values + places[0], panel.leading_columns, own, strip->tokens}, to);
      else
        for (std::int64_t t = 0; t < strip->tokens; ++t)
          for (std::int64_t j = 0; j < kWidth; ++j)
            to[t * kWidth + j] = j < own ? values[places[j] + t * panel.leading_columns] : 0;
    }
  }
};

/// A block of rows, to be packed into `room`, times packed columns, added to `c`, which is that block of the
/// whole, `above` rows below its top: the staircase counts from there.
struct Block {
  Strip rows;
  double* room;
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
    pack_strip<T::kRows>(block->rows, block->room);
    for (std::int64_t column = 0; column < c.columns; column += T::kColumns) {
      const std::int64_t end = column + T::kColumns, first = block->first_row(column);
      const std::int64_t whole_from = block->first_row(std::min(end, c.columns) - 1);
      const double* const b = block->columns + column * depth;
      for (std::int64_t row = first / T::kRows * T::kRows; row < c.rows; row += T::kRows) {
        const double* const a = block->room + row * depth;
        if (end > c.columns || row < whole_from || row + T::kRows > c.rows)
          add_cut_tile<Lanes>(a, b, *block, row, column);
        else
          add_tile<Lanes>(a, b, depth, c.values + row + column * c.leading, c.leading);
      }
    }
  }
};

/// Rows of a block, so that every thread has some.
std::int64_t rows_of_block(std::int64_t rows, std::int64_t threads) {
  const std::int64_t fair = (rows + threads * kBlocksOfAThread - 1) / (threads * kBlocksOfAThread);
  return std::clamp((fair + kRowStep - 1) / kRowStep * kRowStep, kFewestRows, kRows);
}

/// What the threads share: so many columns of a panel from `column` on, for so many tokens from `token` on.
struct Part {
  const PanelOperands<double>* panel;
  Staircase c;
  std::int64_t column, columns, token, tokens;
};

/// Packs the columns, together. By all threads of a region; returns when all are done.
void pack_columns(int lanes, const Part& part, double* to) {
#pragma omp for schedule(static)
  for (std::int64_t first = 0; first < part.columns; first += kColumnStep) {
    const ColumnStrip strip{part.panel, part.column + first, std::min(kColumnStep, part.columns - first),
                            part.token, part.tokens};
    run_with<PackColumns>(lanes, &strip, to + first * part.tokens);
  }
}

/// Takes blocks of rows in turn. By all threads of a region; `room`: this one's.
void add_blocks(int lanes, const Part& part, const double* columns, double* room) {
  const PanelOperands<double>& panel = *part.panel;
  const Staircase& c = part.c;
  const std::int64_t top = c.first_row[part.column];
  const std::int64_t height = rows_of_block(c.rows - top, omp_get_num_threads());
#pragma omp for schedule(dynamic)
  for (std::int64_t row = top; row < c.rows; row += height) {
    const std::int64_t rows = std::min(height, c.rows - row);
    const Block block{
        {panel.rows + row + part.token * panel.leading_rows, panel.leading_rows, rows, part.tokens},
        room,
        columns,
        {c.values + row + part.column * c.leading, c.leading, rows, part.columns, c.first_row + part.column},
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
      const Part part{&panel, c,
                      column, std::min(kColumns, c.columns - column),
                      token,  std::min(kDepth, panel.tokens - token)};
#pragma omp parallel
      {
        pack_columns(lanes_, part, columns_.data());
        add_blocks(lanes_, part, columns_.data(),
                   rows_[static_cast<std::size_t>(omp_get_thread_num())].data());
      }
      progress();
    }
}

}  // namespace headspan
