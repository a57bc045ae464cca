// The sums of one Gram while it grows in the memory of a device: of this rank's share of the lower triangle
// of tiles, what a Matrix has on the host, with about half of its memory. Not the exchange of panels
// (device_exchange.h).
//
// The share is cut into stripes of neighbouring local columns. A stripe holds the local rows from the first
// tile on or below the diagonal of its first column on, so that one product adds to all of it:
//
//   stripe c: [its columns, local rows - first row], FP64, row-major: the columns of the host's column-major
//   array
//
// Where the share is more than a device holds, an object has one piece of it: neighbouring stripes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/matrix/tile_exchange.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// How many columns a stripe has on a rank with so many: few, so that little lies above the diagonal and what
/// is formed in FP32 takes 256 MiB at most, but enough for products at full speed.
std::int64_t stripe_width(std::int64_t local_rows, std::int64_t local_columns);

/// Part `number` of `of` nearly equal ones.
struct GramPiece {
  std::int64_t number = 0;
  std::int64_t of = 1;
};

/// How many numbers the fullest rank of a grid has in the largest of `pieces` pieces of a square of `columns`
/// in blocks.
std::int64_t most_elements(const GridShape& grid, std::int64_t columns, std::int64_t block,
                           std::int64_t pieces);

/// One rank's share of a square.
struct SquareShare {
  BlockCyclic rows, columns;
  int row, column;  ///< of the process

  std::int64_t local_rows() const { return rows.local_size(row); }
  std::int64_t local_columns() const { return columns.local_size(column); }
  /// The first local row on or below the tile of the diagonal that a local column goes through.
  std::int64_t first_row_of(std::int64_t local_column) const;
};

class DeviceGram {
 public:
  /// Zeros. The sums of a square of `columns` in blocks on the grid; `width`: of a stripe, 0: stripe_width's.
  DeviceGram(const Grid& grid, std::int64_t columns, std::int64_t block, at::Device device,
             std::int64_t width = 0, GramPiece piece = {});

  /// Adds a panel, the same tokens in both: rows [tokens, local rows] and columns [tokens, local columns], of
  /// panel_type. Local.
  void add(const at::Tensor& rows, const at::Tensor& columns, Precision precision);

  /// Copies the sums to the host, or takes what the host has; `matrix` has this grid, size and block. Of it
  /// the columns of other pieces and what lies above the tiles on the diagonal are not touched. Local.
  void copy_to(Matrix& matrix) const;
  void copy_from(const Matrix& matrix);

  /// sums += alpha x x^T for x: [D]. Local.
  void add_outer_product(double alpha, const std::vector<double>& x);

  /// Copies tiles of this rank, size x size each, to their place in `matrix`, those on the diagonal symmetric
  /// from their lower triangle. `size` divides the block and D. Of a whole share. Local.
  void copy_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles) const;

  /// A view of `count` local columns from `column` on, of one block, and of their local rows from `row` on:
  /// [count, rows]. Of a whole share. Local.
  at::Tensor columns(std::int64_t column, std::int64_t count, std::int64_t row) const;

  std::int64_t elements() const;

 private:
  struct Stripe {
    std::int64_t column, row;  // the first of each, local
    at::Tensor sums;           // [columns, rows]
  };
  /// The stripe's part of a local column of the matrix that lies on or below the diagonal's tile.
  struct Segment {
    std::int64_t first_row, count, in_stripe;
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
