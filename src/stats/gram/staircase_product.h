// How the product of a panel is cut for caches and shared among threads, whatever multiplies
// (syrk_kernel.h, integer_kernel.h): the packed columns of a chunk of tokens lie in the cache that cores
// share, a packed block of rows in a core's own, after Goto and van de Geijn, ACM TOMS 34 (2008). Not the
// packing, nor the innermost loop. Each element of the result is summed by one thread, chunk by chunk in the
// order of the tokens, so that it has the same bits for any number of threads. Local; no MPI.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <omp.h>

#include "base/process/cpu_dispatch.h"
#include "base/range.h"
#include "dist/kernels/row_blocks.h"
#include "dist/matrix/panel_exchange.h"

namespace headspan {

/// The part of a column-major matrix [rows, columns] at row first_row[j] and below in each column j;
/// first_row does not decrease with j.
struct Staircase {
  double* values;
  std::int64_t leading, rows, columns;
  const std::int64_t* first_row;
};

/// What is subtracted from the operands of a panel before they are rounded and multiplied.
struct PanelOrigin {
  const double* rows;     ///< by local row
  const double* columns;  ///< by local column
};

/// Rows of an operand: [count, depth], column-major; `origin`: [count] is subtracted from them.
template <class T>
struct Strip {
  const T* values;
  std::int64_t leading, count, depth;
  const double* origin;
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

/// The part of the result that a packed block of rows and the packed columns of a chunk add to. It begins
/// `above` rows below the top, from which c.first_row counts. `depth`: tokens.
struct ResultBlock {
  std::int64_t depth;
  Staircase c;
  std::int64_t above;

  HS_INLINED std::int64_t first_row(std::int64_t column) const {
    return std::max<std::int64_t>(0, c.first_row[column] - above);
  }
};

/// Calls add(row, column, c, leading) for every tile of a block, which adds [kRows, kColumns] to c. A tile
/// that the staircase or an edge cuts is added to zeros, of which those inside are kept.
template <int kRows, int kColumns, class Add>
HS_INLINED inline void for_tiles(const ResultBlock& block, const Add& add) {
  const Staircase& c = block.c;
  const auto add_cut = [&](std::int64_t row, std::int64_t column) HS_INLINED {
    alignas(64) double sums[kRows * kColumns] = {};
    add(row, column, static_cast<double*>(sums), std::int64_t{kRows});
    const std::int64_t last = std::min(row + kRows, c.rows);
    for (std::int64_t j = 0; j < kColumns && column + j < c.columns; ++j)
      for (std::int64_t i = std::max(row, block.first_row(column + j)); i < last; ++i)
        c.values[i + (column + j) * c.leading] += sums[i - row + j * kRows];
  };
  for (std::int64_t column = 0; column < c.columns; column += kColumns) {
    const std::int64_t end = column + kColumns, first = block.first_row(column);
    const std::int64_t whole_from = block.first_row(std::min(end, c.columns) - 1);
    for (std::int64_t row = first / kRows * kRows; row < c.rows; row += kRows)
      if (end > c.columns || row < whole_from || row + kRows > c.rows)
        add_cut(row, column);
      else
        add(row, column, c.values + row + column * c.leading, c.leading);
  }
}

/// Adds panels to a staircase. Packing has
///   Packed                          a packed operand
///   reserve(packed, count, tokens)  makes room for `count` rows or columns
///   pack_columns(chunk, first, to)  packs the columns of a chunk as number `first` and following ones
///   pack_rows(strip, to)
///   add(rows, columns, block)       adds their product to a block of the result
/// Its workspace is kept from call to call.
template <class Packing>
class StaircaseProduct {
 public:
  explicit StaircaseProduct(const Packing& packing) : packing_(packing) {}
  Packing& packing() { return packing_; }

  /// Adds c[i, j] += sum_t x[i, t] y[j, t] for i >= c.first_row[j], in chunks of nearly the same length and
  /// at most `most_tokens` tokens. The threads of this process share the work; the calling one runs
  /// `progress` between chunks. Throws std::bad_alloc.
  template <class T>
  void add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
           std::int64_t most_tokens, const std::function<void()>& progress) {
    const std::int64_t steps = (std::min(kColumns, c.columns) + kColumnStep - 1) / kColumnStep;
    const std::int64_t depth = even_depth(panel.tokens, most_tokens);
    for (Packed& columns : columns_) packing_.reserve(columns, steps * kColumnStep, depth);
    rows_.resize(static_cast<std::size_t>(omp_get_max_threads()));
    for (Packed& rows : rows_) packing_.reserve(rows, kMostBlockRows, depth);
    add_chunks(chunks_of(panel, origin, c, depth), progress);
  }

 private:
  using Packed = typename Packing::Packed;
  static constexpr std::int64_t kColumns = 2048;   // times a chunk's tokens fits the cache that cores share
  static constexpr std::int64_t kColumnStep = 64;  // a multiple of every tile's columns

  /// Returns the tokens of a chunk if `tokens` are cut into chunks of nearly the same length.
  static std::int64_t even_depth(std::int64_t tokens, std::int64_t most_tokens) {
    constexpr std::int64_t kStep = 16;
    const std::int64_t chunks = std::max<std::int64_t>(1, (tokens + most_tokens - 1) / most_tokens);
    return std::min(most_tokens, ((tokens + chunks - 1) / chunks + kStep - 1) / kStep * kStep);
  }

  /// Returns the chunks of a panel, of at most `depth` tokens, that have rows on or below the staircase.
  template <class T>
  static std::vector<Chunk<T>> chunks_of(const PanelOperands<T>& panel, const PanelOrigin& origin,
                                         const Staircase& c, std::int64_t depth) {
    std::vector<Chunk<T>> chunks;
    for (std::int64_t column = 0; column < c.columns && c.first_row[column] < c.rows; column += kColumns)
      for (std::int64_t token = 0; token < panel.tokens; token += depth)
        chunks.push_back({&panel, origin, c, column, std::min(kColumns, c.columns - column), token,
                          std::min(depth, panel.tokens - token)});
    return chunks;
  }

  /// Called by all threads of a parallel region, which take steps in turn and go on when none is left.
  template <class T>
  void pack_columns(const Chunk<T>& chunk, Packed& to) const {
#pragma omp for schedule(dynamic) nowait
    for (std::int64_t first = 0; first < chunk.columns; first += kColumnStep) {
      Chunk<T> step = chunk;
      step.column += first;
      step.columns = std::min(kColumnStep, chunk.columns - first);
      packing_.pack_columns(step, first, to);
    }
  }

  /// Adds blocks of rows; called by all threads of a parallel region, which take blocks in turn and go on
  /// when none is left. `packed`: room of this thread.
  template <class T>
  void add_blocks(const Chunk<T>& chunk, const Packed& columns, Packed& packed) const {
    const PanelOperands<T>& panel = *chunk.panel;
    const Staircase& c = chunk.c;
    const std::vector<Range> blocks = row_blocks(c.first_row[chunk.column], c.rows, omp_get_num_threads());
#pragma omp for schedule(dynamic) nowait
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto [row, count] = blocks[i];
      packing_.pack_rows(Strip<T>{panel.rows + row + chunk.token * panel.leading_rows, panel.leading_rows,
                                  count, chunk.tokens, chunk.origin.rows + row},
                         packed);
      packing_.add(packed, columns,
                   {chunk.tokens,
                    {c.values + row + chunk.column * c.leading, c.leading, count, chunk.columns,
                     c.first_row + chunk.column},
                    row});
    }
  }

  template <class T>
  void add_chunks(const std::vector<Chunk<T>>& chunks, const std::function<void()>& progress) {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      Packed& packed = columns_[i % 2];
      Packed& next = columns_[(i + 1) % 2];
#pragma omp parallel
      {
        if (i == 0) {
          pack_columns(chunks[i], packed);
#pragma omp barrier
        }
        add_blocks(chunks[i], packed, rows_[static_cast<std::size_t>(omp_get_thread_num())]);
        // Threads for which no block is left pack the next chunk meanwhile.
        if (i + 1 < chunks.size()) pack_columns(chunks[i + 1], next);
      }
      progress();
    }
  }

  Packing packing_;
  Packed columns_[2];         // shared by all threads: this chunk's and the next one's
  std::vector<Packed> rows_;  // by thread
};

}  // namespace headspan
