#include "device/resident_grams.h"

#include <utility>

#include "base/checked.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// Returns the tiles between heads of one layer that this rank owns.
std::vector<Tile> local_layer_tiles(const Matrix& matrix, const HeadLayout& layout) {
  const std::int64_t d = layout.head_size;
  const auto layer_of = [&](std::int64_t head) { return layout.layer[to_size(head)]; };
  std::vector<Tile> tiles;
  for (std::int64_t column = 0; column < layout.heads(); ++column)
    for (std::int64_t row = column; row < layout.heads() && layer_of(row) == layer_of(column); ++row)
      if (matrix.owner(row * d, column * d) == matrix.grid().comm().rank()) tiles.push_back({row, column});
  return tiles;
}

}  // namespace

RegressionData ResidentGrams::take_data(HeadLayout layout, FitRules rules) {
  const std::int64_t d = layout.head_size;
  const std::vector<Tile> tiles = local_layer_tiles(parts_.front().host.matrix, layout);
  const auto adding_to = [&](ResidentSums& part) -> AddOuterProduct {
    return [&, d](Matrix& matrix, double alpha, const std::vector<double>& x) {
      agree(matrix.grid().comm(), [&] {
        part.gram.add_outer_product(alpha, x);
        part.gram.copy_tiles(matrix, d, tiles);
      });
    };
  };
  const auto finished = [&](ResidentSums& part) {
    return finish(std::move(part.host), shift_, adding_to(part));
  };
  HeadGram fit = finished(parts_.front());
  if (parts_.size() == 1) return regression_data(std::move(layout), rules, std::move(fit), std::nullopt);
  return regression_data(std::move(layout), rules, std::move(fit), finished(parts_[1]), adding_to(parts_[1]));
}

void ResidentGrams::copy_to_host(RegressionData& data, const std::vector<Tile>& wanted) const {
  const std::int64_t d = data.layout.head_size;
  const std::vector<Tile> tiles = requested_local_tiles(data.fit.matrix, d, wanted);
  agree(data.comm(), [&] {
    fit().copy_tiles(data.fit.matrix, d, tiles);
    if (data.heldout) heldout()->copy_tiles(data.heldout->matrix, d, tiles);
  });
}

void ResidentGrams::copy_all_to_host(RegressionData& data) const {
  agree(data.comm(), [&] {
    fit().copy_to(data.fit.matrix);
    mirror_diagonal_blocks(data.fit.matrix);
    if (!data.heldout) return;
    heldout()->copy_to(data.heldout->matrix);
    mirror_diagonal_blocks(data.heldout->matrix);
  });
}

}  // namespace headspan
