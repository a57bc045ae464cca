// A real matrix distributed 2-D block-cyclically over a process grid: each rank holds its blocks in one
// column-major array, exactly as ScaLAPACK expects it. Blocks are square. Between guard zones, which
// `guards_intact` checks. Memory is taken where something is written: for one triangle about half.
#pragma once

#include <array>
#include <cstdint>

#include "dist/matrix/block_cyclic.h"
#include "dist/matrix/grid.h"
#include "dist/matrix/zero_pages.h"

namespace headspan {

class Matrix {
 public:
  /// rows x columns in blocks of block x block, all zero. `grid` must outlive the matrix. Local; no
  /// communication.
  Matrix(const Grid& grid, std::int64_t rows, std::int64_t columns, std::int64_t block);

  const Grid& grid() const { return *grid_; }
  const BlockCyclic& rows() const { return rows_; }
  const BlockCyclic& columns() const { return columns_; }
  std::int64_t local_rows() const { return rows_.local_size(grid_->row()); }
  std::int64_t local_columns() const { return columns_.local_size(grid_->column()); }
  std::int64_t leading() const { return leading_; }  ///< distance of neighbouring columns, at least 1

  double* data() { return static_cast<double*>(storage_.data()) + kGuard; }
  const double* data() const { return static_cast<const double*>(storage_.data()) + kGuard; }
  double* at(std::int64_t local_row, std::int64_t local_column) {
    return data() + local_row + local_column * leading_;
  }
  const double* at(std::int64_t local_row, std::int64_t local_column) const {
    return data() + local_row + local_column * leading_;
  }

  /// The rank that owns the global element.
  int owner(std::int64_t row, std::int64_t column) const {
    return grid_->rank_at(rows_.owner(row), columns_.owner(column));
  }
  /// ScaLAPACK's array descriptor. Throws Error when a size does not fit in 32 bits.
  std::array<int, 9> descriptor() const;
  /// False when something wrote before or behind the local array.
  bool guards_intact() const;

 private:
  static constexpr std::int64_t kGuard = 64;  // elements

  const Grid* grid_;
  BlockCyclic rows_;
  BlockCyclic columns_;
  std::int64_t leading_;
  std::int64_t elements_;
  ZeroPages storage_;
};

}  // namespace headspan
