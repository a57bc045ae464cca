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

std::vector<double> assemble(const std::vector<std::int64_t>& heads, std::int64_t d, const double* tiles) {
  const auto count = static_cast<std::int64_t>(heads.size());
  const std::int64_t ld = count * d;
  std::vector<double> matrix(static_cast<std::size_t>(ld * ld));
  for (std::int64_t a = 0; a < count; ++a)
    for (std::int64_t b = 0; b <= a; ++b, tiles += d * d) {
      const bool stored_as_is = heads[static_cast<std::size_t>(a)] >= heads[static_cast<std::size_t>(b)];
      for (std::int64_t j = 0; j < d; ++j)
        for (std::int64_t i = 0; i < d; ++i) {  // element (i, j) of block (a, b)
          const double value = stored_as_is ? tiles[i + j * d] : tiles[j + i * d];
          matrix[static_cast<std::size_t>(a * d + i + (b * d + j) * ld)] = value;
          matrix[static_cast<std::size_t>(b * d + j + (a * d + i) * ld)] = value;
        }
    }
  return matrix;
}

}  // namespace headspan
