// The sums of one Gram in the memory of a device while tokens are added: this rank's share of the lower
// triangle of tiles. It takes about half the memory of the Matrix that holds the same on the host. The
// exchange of panels is in device/device_exchange.h.
//
// The share is cut into stripes of neighbouring local columns. A stripe holds the local rows from the first
// tile on or below the diagonal in its first column on, so that one product adds to all of it:
//
//   stripe: [columns, local rows - first row], FP64, row-major, which are columns of the host's column-major
//   array
//
// If the share does not fit on the device, an object holds a slice of it: some neighbouring stripes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/matrix/tile_exchange.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// Returns how many columns a stripe should have: few, so that little of it lies above the diagonal and a
/// product in FP32 takes at most 256 MiB, but enough for products at full speed.
std::int64_t stripe_width(std::int64_t local_rows, std::int64_t local_columns);

/// Slice `number` of `of` nearly equal ones.
struct GramSlice {
  std::int64_t number = 0;
  std::int64_t of = 1;
};

/// Returns how many elements a rank of the grid holds at most, if a Gram of `columns` columns in blocks is
/// cut into `slices` slices.
std::int64_t most_elements(const GridShape& grid, std::int64_t columns, std::int64_t block,
                           std::int64_t slices);

/// One rank's share of a block-cyclic square matrix.
struct SquareShare {
  BlockCyclic rows, columns;
  int row, column;  ///< the rank's process row and column

  std::int64_t local_rows() const { return rows.local_size(row); }
  std::int64_t local_columns() const { return columns.local_size(column); }
  /// Returns the first local row of the first block on or below the diagonal in a local column.
  std::int64_t first_row_of(std::int64_t local_column) const;
};

class DeviceGram {
 public:
  /// Starts with zeros, for a Gram of `columns` columns in blocks of `block` on the grid. `width`: the
  /// columns of a stripe; 0 means stripe_width().
  DeviceGram(const Grid& grid, std::int64_t columns, std::int64_t block, at::Device device,
             std::int64_t width = 0, GramSlice slice = {});

  /// Adds the product of a panel: rows [tokens, local rows] and columns [tokens, local columns], of
  /// panel_type. Local.
  void add(const at::Tensor& rows, const at::Tensor& columns, Precision precision);

  /// Copy the sums to or from `matrix` on the host, which has the same grid, size and block. Only the columns
  /// of this slice are copied, on and below the diagonal tiles. Local.
  void copy_to(Matrix& matrix) const;
  void copy_from(const Matrix& matrix);

  /// Adds alpha x x^T for x: [D]. Local.
  void add_outer_product(double alpha, const std::vector<double>& x);

  /// Copies tiles of this rank, size x size each, to `matrix`; mirrors the lower triangle of diagonal tiles.
  /// `size` divides the block and D. Only if the object holds the whole share. Local.
  void copy_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles) const;

  /// Returns a view of `count` local columns from `column` on, which belong to one block, in the local rows
  /// from `row` on: [count, rows]. Only if the object holds the whole share. Local.
  at::Tensor columns(std::int64_t column, std::int64_t count, std::int64_t row) const;

  /// Returns how many elements this rank holds.
  std::int64_t elements() const;

 private:
  struct Stripe {
    std::int64_t column, row;  // the first local ones
    at::Tensor sums;           // [columns, rows]
  };
  /// The stored part of a local column of the matrix.
  struct Segment {
    std::int64_t first_row, count;
    std::int64_t offset;  // in the stripe
  };
  Segment segment(const Stripe& stripe, std::int64_t column) const;
  const Stripe& stripe_of(std::int64_t local_column) const;
  at::Tensor tiles_of(const Stripe& stripe, std::int64_t size, const Tile* tiles, std::int64_t count) const;
  at::Tensor host_buffer(const Stripe& stripe, at::Tensor& memory) const;

  SquareShare share_;
  at::Device device_;
  std::vector<Stripe> stripes_;
};

}  // namespace headspan
