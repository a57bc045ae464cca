// Gathers the moments of a few heads into one dense matrix: what a joint regression of one target needs. Not
// the transfer of tiles between ranks (dist/matrix/tile_exchange.h). Local.
#pragma once

#include "base/range.h"
#include "dist/matrix/tile_exchange.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Returns the diagonal tiles of `heads`.
std::vector<Tile> diagonal_tiles(Range heads);

/// Returns the tiles of the lower triangle among `heads`, in the order that `assemble` expects.
std::vector<Tile> tiles_among(const std::vector<std::int64_t>& heads);

/// Copies a tile, or its transpose, to out: [d, d], column-major with leading dimension ld.
void copy_tile(const TileView& tile, std::int64_t d, bool transposed, double* out, std::int64_t ld);

/// Copies the tiles of `tiles_among(heads)` to the lower triangle of tiles of out: [heads.size() * d,
/// heads.size() * d], column-major without gaps. Leaves other elements of `out` alone.
void assemble(const std::vector<std::int64_t>& heads, std::int64_t d, const TileView* tiles, double* out);

/// Returns the moments of `heads`, [heads.size() * d, heads.size() * d], as `assemble` writes them and 0
/// elsewhere. Each rank names its own heads, or none. Collective over the matrix's grid.
std::vector<double> dense_moments(const Matrix& matrix, const std::vector<std::int64_t>& heads,
                                  std::int64_t d);

}  // namespace headspan
