// Brings a panel of tokens to the ranks that multiply it. Each rank holds some tokens with all columns of Z;
// rank (p, q) of the grid needs, of the tokens of *all* ranks, the columns of its block rows and of its block
// columns, so that one local product adds its tiles of Z^T Z.
//
// One message per pair of ranks and operand, all in flight at once: each rank receives n (|rows| + |columns|)
// values, which is the least that any algorithm can do. Where the grid has one row of ranks its rows are all
// columns, and its columns are read among them: they are brought once. `start` posts the transfer, `progress`
// lets it advance between pieces of other work, `finish` completes it.
//
// The operands are column-major [local rows or columns, tokens]; both list the tokens by rank. Their columns
// lie an odd number of cache lines apart: a power of two, which many models have, would make BLAS miss the
// cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dist/matrix/large_array.h"
#include "dist/matrix/matrix.h"

namespace headspan {

template <class T>
struct PanelOperands {
  const T* rows = nullptr;     ///< [matrix.local_rows(), tokens]
  const T* columns = nullptr;  ///< [matrix.local_columns(), tokens]; within `rows` where the grid has one row
  std::int64_t leading_rows = 1, leading_columns = 1;  ///< distance of neighbouring tokens
  std::int64_t tokens = 0;                             ///< of all ranks
  std::int64_t block = 1, distance = 1;  ///< columns of a block are neighbours, blocks `distance` apart

  /// Where a column of `columns` lies.
  std::int64_t place(std::int64_t column) const { return column / block * distance + column % block; }
};

/// The same operands, with `count` columns that are all neighbours: copied to `memory` where they are not. By
/// the threads of this process. Throws std::bad_alloc.
template <class T>
PanelOperands<T> with_neighbouring_columns(PanelOperands<T> panel, std::int64_t count, LargeArray<T>& memory);

template <class T>
class PanelExchange {
 public:
  explicit PanelExchange(const Grid& grid) : grid_(&grid) {}
  ~PanelExchange();
  PanelExchange(const PanelExchange&) = delete;
  PanelExchange& operator=(const PanelExchange&) = delete;

  /// Packs this rank's `tokens` (0 is normal) and posts the transfer of operands for `shape`, a square matrix
  /// on the grid. `fill(token, first, count, out)` writes the values of columns first..first+count of a
  /// token, once for each value and for a column in the order of tokens; `fill_again`, which does the same,
  /// is called where they are needed a second time. Both are called by several threads, but for one column
  /// always by the same. Collective over the grid.
  template <class Fill, class FillAgain>
  void start(const Matrix& shape, std::int64_t tokens, const Fill& fill, const FillAgain& fill_again) {
    open(shape, tokens);
    pack(tokens, rows_, fill);
    if (!one_row()) pack(tokens, columns_, fill_again);
    post();
  }
  /// Lets posted transfers advance. Local.
  void progress();
  /// Waits for the transfer posted last. The operands stay valid until the second `start` from now, on one
  /// rank, where there is nothing to wait for, until the next.
  PanelOperands<T> finish();

 private:
  static constexpr std::int64_t kWide = 4096;  // columns

  /// Neighbouring columns that go to one place, kWide at most where that is more than a block.
  struct Segment {
    std::int64_t first, count;
    T* out;               // of the first token
    std::int64_t stride;  // to the next token
  };
  /// One operand of the panel under way.
  struct Operand {
    LargeArray<T> packed;       // for other parts, one after another, each [part's columns, tokens]
    LargeArray<T> received[2];  // [this part's columns, tokens of all ranks], and those of the panel before
    std::vector<T*> start;      // by part: this rank's tokens for it; for its own part within `received`
    std::vector<std::int64_t> width;  // by part: distance of its tokens
    std::vector<Segment>
        segments;  // of this rank's tokens, all columns in order; none where nobody needs them
  };

  template <class Fill>
  static void pack(std::int64_t tokens, const Operand& operand, const Fill& fill) {
    const auto count = static_cast<std::int64_t>(operand.segments.size());
    // A thread writes token by token what fits its cache.
    const std::int64_t piece = count == 0 ? 1 : std::max<std::int64_t>(1, kWide / operand.segments[0].count);
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += piece)
      for (std::int64_t token = 0; token < tokens; ++token)
        for (std::int64_t k = first; k < std::min(first + piece, count); ++k) {
          const Segment& segment = operand.segments[static_cast<std::size_t>(k)];
          fill(token, segment.first, segment.count, segment.out + token * segment.stride);
        }
  }
  bool alone() const { return grid_->comm().size() == 1; }
  bool one_row() const { return grid_->rows() == 1; }
  void open(const Matrix& shape, std::int64_t tokens);
  void open_operand(Operand& operand, const BlockCyclic& axis, int part);
  void post();
  void post_operand(Operand& operand, int tag);

  const Grid* grid_;
  Operand rows_;
  Operand columns_;                   // unless there is one row
  std::vector<std::int64_t> counts_;  // tokens of each rank
  std::int64_t block_ = 1;            // columns of the matrix's blocks
  int current_ = 0;                   // which of `received`
  std::vector<MPI_Request> requests_;
};

}  // namespace headspan
