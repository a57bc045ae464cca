// The moments of a few heads gathered into one dense matrix: what a joint regression of one target needs.
#pragma once

#include "dist/matrix/tile_exchange.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The tiles of the lower triangle among `heads`, in the order that `assemble` expects.
std::vector<Tile> tiles_among(const std::vector<std::int64_t>& heads);

/// Writes a tile as it lies, or transposed, to out: [d, d], column-major with leading dimension ld. Local.
void copy_tile(const TileView& tile, std::int64_t d, bool transposed, double* out, std::int64_t ld);

/// Writes the lower triangle of tiles of [heads.size() * d, heads.size() * d], column-major without gaps,
/// tiles on the diagonal whole, from the tiles of `tiles_among(heads)`. The rest of `out` is left alone.
void assemble(const std::vector<std::int64_t>& heads, std::int64_t d, const TileView* tiles, double* out);

/// Returns the moments of `heads`, [heads.size() * d, heads.size() * d], as `assemble` writes them and 0
/// elsewhere. Each rank names its own heads, or none. Collective over the matrix's grid.
std::vector<double> dense_moments(const Matrix& matrix, const std::vector<std::int64_t>& heads,
                                  std::int64_t d);

}  // namespace headspan
