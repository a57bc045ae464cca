// PanelExchange: brings a panel of tokens to the ranks that multiply it. Each rank holds some tokens with all
// columns of Z. Rank (p, q) of the grid needs the columns of its block rows and of its block columns for the
// tokens of *all* ranks, so that one local product adds its tiles of Z^T Z.
//
// One message per pair of ranks and operand, all in flight at once. Each rank receives n (|rows| + |columns|)
// values for n tokens, the minimum for any algorithm. On a grid with one row of ranks the block rows are all
// columns of Z, so the block columns are read among them and not sent again. `start` posts the transfer,
// `progress` lets it advance between steps of other work, `finish` completes it.
//
// The operands are column-major [local rows or columns, tokens], with the tokens in order of ranks. Their
// leading dimensions are odd numbers of cache lines, because powers of two, which many models have, make BLAS
// miss the cache.
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
  const T* columns = nullptr;  ///< [matrix.local_columns(), tokens]; within `rows` if the grid has one row
  std::int64_t leading_rows = 1, leading_columns = 1;  ///< leading dimensions
  std::int64_t tokens = 0;                             ///< of all ranks
  std::int64_t block = 1, distance = 1;  ///< columns of a block are contiguous, blocks `distance` apart

  /// Returns the offset of a column in `columns`.
  std::int64_t offset(std::int64_t column) const { return column / block * distance + column % block; }
};

/// Returns the operands with all `count` columns contiguous; OpenMP threads copy them to `memory` if they are
/// not. Throws std::bad_alloc.
template <class T>
PanelOperands<T> with_contiguous_columns(PanelOperands<T> panel, std::int64_t count, LargeArray<T>& memory);

template <class T>
class PanelExchange {
 public:
  explicit PanelExchange(const Grid& grid) : grid_(&grid) {}
  ~PanelExchange();
  PanelExchange(const PanelExchange&) = delete;
  PanelExchange& operator=(const PanelExchange&) = delete;

  /// Packs this rank's `tokens` (0 is normal) and posts the transfer of the operands for `shape`, a square
  /// matrix on the grid. `fill(token, first, count, out)` writes columns first .. first + count - 1 of a
  /// token to `out`. It is called once for each value, and for each column in the order of tokens;
  /// `fill_again`, which does the same, is called for values that are needed a second time. Several threads
  /// call both, but always the same one for a column. Collective over the grid.
  template <class Fill, class FillAgain>
  void start(const Matrix& shape, std::int64_t tokens, const Fill& fill, const FillAgain& fill_again) {
    open(shape, tokens);
    pack(tokens, rows_, fill);
    if (!one_row()) pack(tokens, columns_, fill_again);
    post();
  }
  /// Lets posted transfers advance. Local.
  void progress();
  /// Waits for the transfer posted last. The operands remain valid until the second `start` after this; on
  /// one rank, where nothing is transferred, until the next `start`.
  PanelOperands<T> finish();

 private:
  static constexpr std::int64_t kMaxSegment = 4096;  // columns

  /// Contiguous columns for one part: a block, or several with kMaxSegment columns at most.
  struct Segment {
    std::int64_t first, count;
    T* out;               // for the first token
    std::int64_t stride;  // from token to token
  };
  /// One operand of the current panel. A part is a row (for `rows_`) or column of the grid.
  struct Operand {
    LargeArray<T> packed;             // for the other parts, one after another: [part's columns, tokens]
    LargeArray<T> received[2];        // two panels of [this part's columns, tokens of all ranks]
    std::vector<T*> start;            // by part: this rank's tokens for it; for its own part in `received`
    std::vector<std::int64_t> width;  // by part: leading dimension
    std::vector<Segment> segments;    // all columns in order
  };

  template <class Fill>
  static void pack(std::int64_t tokens, const Operand& operand, const Fill& fill) {
    const auto count = static_cast<std::int64_t>(operand.segments.size());
    // As many segments as fit in the cache of a thread, which writes them token by token.
    const std::int64_t step =
        count == 0 ? 1 : std::max<std::int64_t>(1, kMaxSegment / operand.segments[0].count);
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += step)
      for (std::int64_t token = 0; token < tokens; ++token)
        for (std::int64_t k = first; k < std::min(first + step, count); ++k) {
          const Segment& segment = operand.segments[static_cast<std::size_t>(k)];
          fill(token, segment.first, segment.count, segment.out + token * segment.stride);
        }
  }
  bool single_rank() const { return grid_->comm().size() == 1; }
  bool one_row() const { return grid_->rows() == 1; }
  void open(const Matrix& shape, std::int64_t tokens);
  void open_operand(Operand& operand, const BlockCyclic& axis, int part);
  void post();
  void post_operand(Operand& operand, int tag);

  const Grid* grid_;
  Operand rows_;
  Operand columns_;                   // unused if the grid has one row
  std::vector<std::int64_t> counts_;  // tokens of each rank
  std::int64_t block_ = 1;            // columns of the matrix's blocks
  int current_ = 0;                   // index into `received`
  std::vector<MPI_Request> requests_;
};

}  // namespace headspan
