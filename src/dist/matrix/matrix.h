// Matrix: a real matrix distributed 2-D block-cyclically over a process grid. Each rank holds its square
// blocks in one column-major array, exactly as ScaLAPACK expects it, between guard zones that `guards_intact`
// checks. Memory is allocated only where something is written: about half of it if one triangle is used.
#pragma once

#include <array>
#include <cstdint>

#include "dist/matrix/block_cyclic.h"
#include "dist/matrix/grid.h"
#include "dist/matrix/zero_pages.h"

namespace headspan {

class Matrix {
 public:
  /// Makes a zero matrix of rows x columns in blocks of block x block. `grid` must outlive it. Local.
  Matrix(const Grid& grid, std::int64_t rows, std::int64_t columns, std::int64_t block);

  const Grid& grid() const { return *grid_; }
  const BlockCyclic& rows() const { return rows_; }
  const BlockCyclic& columns() const { return columns_; }
  std::int64_t local_rows() const { return rows_.local_size(grid_->row()); }
  std::int64_t local_columns() const { return columns_.local_size(grid_->column()); }
  std::int64_t leading() const { return leading_; }  ///< leading dimension, at least 1

  double* data() { return static_cast<double*>(storage_.data()) + kGuard; }
  const double* data() const { return static_cast<const double*>(storage_.data()) + kGuard; }
  double* at(std::int64_t local_row, std::int64_t local_column) {
    return data() + local_row + local_column * leading_;
  }
  const double* at(std::int64_t local_row, std::int64_t local_column) const {
    return data() + local_row + local_column * leading_;
  }

  /// Returns the rank that owns the global element.
  int owner(std::int64_t row, std::int64_t column) const {
    return grid_->rank_at(rows_.owner(row), columns_.owner(column));
  }
  /// Returns ScaLAPACK's array descriptor. Throws Error if a size does not fit in 32 bits.
  std::array<int, 9> descriptor() const;
  /// Returns false if something was written before or after the local array.
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
