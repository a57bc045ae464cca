// PanelExchange: brings a panel of tokens to the ranks that multiply it. Each rank holds some tokens with all
// columns of Z. Rank (p, q) of the grid needs the columns of its block rows and of its block columns for the
// tokens of *all* ranks, so that one local product adds its tiles of Z^T Z.
//
// One message per pair of ranks and operand, all in flight at once. Each rank receives n (|rows| + |columns|)
// values for n tokens, the minimum for any algorithm. On a grid with one row of ranks the block rows are all
// columns of Z, so the block columns are read among them and not sent again; a single rank reads Z where it
// lies. `start` posts the transfer, `progress` lets it advance between steps of other work, `finish`
// completes it.
//
// The operands are column-major [local rows or columns, tokens], with the tokens in order of ranks. Their
// leading dimensions are odd numbers of cache lines on several ranks, because powers of two, which many
// models have, make a product miss the cache.
#pragma once

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

/// Returns the leading dimension for `count` rows of an operand: an odd number of cache lines.
template <class T>
std::int64_t panel_leading(std::int64_t count) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
  return count == 0 ? 0 : ((count + kLine - 1) / kLine | 1) * kLine;
}

template <class T>
class PanelExchange {
 public:
  explicit PanelExchange(const Grid& grid) : grid_(&grid) {}
  ~PanelExchange();
  PanelExchange(const PanelExchange&) = delete;
  PanelExchange& operator=(const PanelExchange&) = delete;

  /// Packs this rank's tokens z: [tokens, columns of `shape`], row-major (0 tokens is normal), and posts the
  /// transfer of the operands for `shape`, a square matrix on the grid. z may change afterwards, except on a
  /// single rank. Collective over the grid.
  void start(const Matrix& shape, const T* z, std::int64_t tokens);
  /// Lets posted transfers advance. Local.
  void progress();
  /// Waits for the transfer posted last. The operands remain valid until the second `start` after this; on
  /// one rank, where they are z itself, as long as that.
  PanelOperands<T> finish();

 private:
  /// Contiguous columns for one part: a block, or several.
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

  bool single_rank() const { return grid_->comm().size() == 1; }
  bool one_row() const { return grid_->rows() == 1; }
  void open(Operand& operand, const BlockCyclic& axis, int part);
  static void pack(const T* z, std::int64_t row, std::int64_t tokens, const Operand& operand);
  void post(Operand& operand, int tag);

  const Grid* grid_;
  Operand rows_;
  Operand columns_;                   // unused if the grid has one row
  std::vector<std::int64_t> counts_;  // tokens of each rank
  std::int64_t block_ = 1;            // columns of the matrix's blocks
  const T* alone_ = nullptr;          // z of a single rank
  int current_ = 0;                   // index into `received`
  std::vector<MPI_Request> requests_;
};

}  // namespace headspan
