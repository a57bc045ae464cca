#include "stats/head_moments.h"

#include <algorithm>

namespace headspan {

std::vector<Tile> tiles_among(const std::vector<std::int64_t>& heads) {
  std::vector<Tile> tiles;
  for (std::size_t a = 0; a < heads.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b)
      tiles.push_back({std::max(heads[a], heads[b]), std::min(heads[a], heads[b])});
  return tiles;
}

void assemble(const std::vector<std::int64_t>& heads, std::int64_t d, const TileView* tiles, double* out) {
  const std::int64_t ld = static_cast<std::int64_t>(heads.size()) * d;
  for (std::size_t a = 0; a < heads.size(); ++a)
    for (std::size_t b = 0; b <= a; ++b, ++tiles) {
      double* block = out + static_cast<std::int64_t>(a) * d + static_cast<std::int64_t>(b) * d * ld;
      const double* tile = tiles->values;
      for (std::int64_t j = 0; j < d; ++j) {
        if (heads[a] >= heads[b])
          std::copy_n(tile + j * tiles->leading, d, block + j * ld);
        else
          for (std::int64_t i = 0; i < d; ++i) block[i + j * ld] = tile[j + i * tiles->leading];
      }
    }
}

}  // namespace headspan
