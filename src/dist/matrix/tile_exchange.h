// Moves square tiles between a distributed symmetric matrix and whoever needs them: a rank names tiles, their
// owners send them. The tiles here are those of the caller (a head's d x d), and lie whole inside the blocks
// of the matrix. Only the lower triangle of tiles is read and written: row >= column.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// A tile in units of tiles; row >= column.
struct Tile {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// A tile where it lies: column-major.
struct TileView {
  const double* values = nullptr;
  std::int64_t leading = 0;  ///< distance of neighbouring columns
};

/// Views of the wanted tiles in the order asked for: into the matrix for those that this rank owns, into
/// `received` for the others. Valid while both live.
struct TileViews {
  std::vector<TileView> tiles;
  std::vector<std::vector<double>> received;
};

/// The wanted tiles, size x size each. `size` must divide the block of the matrix. Each rank asks for its own
/// list, empty too. Collective over the matrix's grid.
TileViews view_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& wanted);

/// The same, copied one after another, column-major without gaps.
std::vector<double> fetch_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& wanted);

/// The tiles of this rank that some rank wants, each once. Collective over the matrix's grid.
std::vector<Tile> own_tiles_wanted(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& wanted);

/// The reverse: writes `values`, laid out as `fetch_tiles` returns them, into the owners' parts of the
/// matrix. No tile may be delivered by two ranks. Collective over the matrix's grid.
void deliver_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles, const double* values);

}  // namespace headspan
