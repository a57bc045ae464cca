// Moves square tiles between a distributed symmetric matrix and the ranks that need them: a rank names tiles,
// and their owners send them. The caller chooses the size of a tile (d x d for heads of d columns), which
// must divide the block size of the matrix. Only the lower triangle of tiles is read and written: row >=
// column.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// The position of a tile, counted in tiles; row >= column.
struct Tile {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

/// A view of a column-major tile.
struct TileView {
  const double* values = nullptr;
  std::int64_t leading = 0;  ///< leading dimension
};

/// Views of the requested tiles, in the order of the request: into the matrix for tiles that this rank owns,
/// into `received` for the others. Valid while both live.
struct TileViews {
  std::vector<TileView> tiles;
  std::vector<std::vector<double>> received;
};

/// Returns views of the tiles in `request`, size x size each. Every rank passes its own list, which may be
/// empty. Collective over the matrix's grid.
TileViews view_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& request);

/// Returns copies of the tiles in `request`: [tiles, size, size], each column-major. Collective, as
/// view_tiles is.
std::vector<double> fetch_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& request);

/// Returns the tiles that this rank owns and any rank requests, each once. Collective, as view_tiles is.
std::vector<Tile> requested_local_tiles(const Matrix& matrix, std::int64_t size,
                                        const std::vector<Tile>& request);

/// Writes `values`, laid out as `fetch_tiles` returns them, into the matrix. No two ranks may write the same
/// tile. Collective, as view_tiles is.
void store_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles, const double* values);

}  // namespace headspan
