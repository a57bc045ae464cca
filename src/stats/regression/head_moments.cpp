#include "stats/regression/head_moments.h"

#include <algorithm>

namespace headspan {

std::vector<Tile> diagonal_tiles(Range heads) {
  std::vector<Tile> tiles;
  for (std::int64_t h = heads.first; h < heads.first + heads.count; ++h) tiles.push_back({h, h});
  return tiles;
}

std::vector<Tile> tiles_among(const std::vector<std::int64_t>& heads) {
  std::vector<Tile> tiles;
  for (std::size_t a = 0; a < heads.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b)
      tiles.push_back({std::max(heads[a], heads[b]), std::min(heads[a], heads[b])});
  return tiles;
}

void copy_tile(const TileView& tile, std::int64_t d, bool transposed, double* out, std::int64_t ld) {
  for (std::int64_t j = 0; j < d; ++j)
    if (!transposed)
      std::copy_n(tile.values + j * tile.leading, d, out + j * ld);
    else
      for (std::int64_t i = 0; i < d; ++i) out[i + j * ld] = tile.values[j + i * tile.leading];
}

void assemble(const std::vector<std::int64_t>& heads, std::int64_t d, const TileView* tiles, double* out) {
  const std::int64_t ld = static_cast<std::int64_t>(heads.size()) * d;
  for (std::size_t a = 0; a < heads.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b, ++tiles) {
      double* block = out + static_cast<std::int64_t>(a) * d + static_cast<std::int64_t>(b) * d * ld;
      copy_tile(*tiles, d, heads[a] < heads[b], block, ld);
    }
}

std::vector<double> dense_moments(const Matrix& matrix, const std::vector<std::int64_t>& heads,
                                  std::int64_t d) {
  const TileViews views = view_tiles(matrix, d, tiles_among(heads));
  std::vector<double> moments(heads.size() * heads.size() * static_cast<std::size_t>(d * d));
  if (!heads.empty()) assemble(heads, d, views.tiles.data(), moments.data());
  return moments;
}

}  // namespace headspan
