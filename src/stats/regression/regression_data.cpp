#include "stats/regression/regression_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "dist/matrix/tile_exchange.h"

namespace headspan {
namespace {

constexpr std::int64_t kTileNumbers = std::int64_t{1} << 23;  // of tiles that a rank receives at once

/// Returns the SST of each column; 0 if it is nothing but rounding, SST <= n (8 eps |mean|)^2, or underflows.
std::vector<double> sums_of_squares(const HeadGram& gram, const FitRules& rules) {
  std::vector<double> sst = diagonal(gram.matrix);
  const auto n = static_cast<double>(gram.tokens);
  for (std::size_t j = 0; j < sst.size(); ++j) {
    const double rounding = 8 * std::numeric_limits<double>::epsilon() * std::abs(gram.mean[j]);
    if (sst[j] <= n * std::max(rounding * rounding, rules.smallest_square())) sst[j] = 0;
  }
  return sst;
}

}  // namespace

Range HeadLayout::targets_of(int ranks, int rank) const {
  const Range range = range_of(targets().count, ranks, rank);
  return {targets().first + range.first, range.count};
}

int HeadLayout::owner_of_target(int ranks, std::int64_t target) const {
  return range_owner(targets().count, ranks, target - targets().first);
}

HeadLayout cross_layout(const HeadLayout& sources, const HeadLayout& targets, std::int64_t source_delay) {
  HS_ASSERT(sources.second == 0 && targets.second == 0 && sources.heads() > 0);
  HeadLayout layout = sources;
  layout.layer.insert(layout.layer.end(), targets.layer.begin(), targets.layer.end());
  layout.head.insert(layout.head.end(), targets.head.begin(), targets.head.end());
  layout.second = sources.heads();
  layout.source_delay = source_delay;
  if (sources.head_size != targets.head_size) {
    layout.head_size = std::max(sources.head_size, targets.head_size);
    layout.sizes = {sources.head_size, targets.head_size};
  }
  return layout;
}

HeadLayout reversed(HeadLayout layout) {
  HS_ASSERT(layout.second > 0);
  layout.is_backward = !layout.is_backward;
  return layout;
}

HeadGram first_stream(const HeadGram& both, const HeadLayout& layout) {
  HS_ASSERT(layout.second > 0);
  const std::int64_t wide = layout.head_size, d = layout.sizes ? layout.sizes->front() : wide;
  const auto column_in_both = [&](std::int64_t column) { return column / d * wide + column % d; };
  const Matrix& from = both.matrix;
  const std::int64_t columns = layout.second * d, block = from.rows().block / wide * d;
  HeadGram part{both.tokens, std::vector<double>(to_size(columns)),
                Matrix(from.grid(), columns, columns, block)};
  for (std::int64_t j = 0; j < columns; ++j) part.mean[to_size(j)] = both.mean[to_size(column_in_both(j))];
  // A head has the same owner in both matrices, and the same place among the heads of its owner.
  for (std::int64_t j = 0; j < part.matrix.local_columns(); ++j) {
    const std::int64_t column = part.matrix.columns().global(from.grid().column(), j);
    const std::int64_t first = part.matrix.rows().local_before(from.grid().row(), column / block * block);
    for (std::int64_t i = first; i < part.matrix.local_rows(); i += d)
      std::copy_n(from.at(column_in_both(i), column_in_both(j)), d, part.matrix.at(i, j));
  }
  return part;
}

void set_second_stream(HeadGram& both, const HeadLayout& layout, const HeadGram& second) {
  HS_ASSERT(layout.second > 0);
  const std::int64_t wide = layout.head_size, d = layout.sizes ? layout.sizes->back() : wide;
  Matrix& to = both.matrix;
  const Grid& grid = to.grid();
  std::vector<Tile> mine;  // of `second`
  for (std::int64_t j = to.columns().local_before(grid.column(), layout.second * wide);
       j < to.local_columns(); j += wide) {
    const std::int64_t head = to.columns().global(grid.column(), j) / wide;
    for (std::int64_t i = to.rows().local_before(grid.row(), head * wide); i < to.local_rows(); i += wide)
      mine.push_back({to.rows().global(grid.row(), i) / wide - layout.second, head - layout.second});
  }
  const std::int64_t step = std::max<std::int64_t>(1, kTileNumbers / (d * d));
  const auto count = static_cast<std::int64_t>(mine.size()),
             rounds = grid.comm().max((count + step - 1) / step);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::vector<Tile> tiles(mine.begin() + std::min(count, round * step),
                                  mine.begin() + std::min(count, (round + 1) * step));
    const TileViews views = view_tiles(second.matrix, d, tiles);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      double* const out = to.at(to.rows().local((layout.second + tiles[t].row) * wide),
                                to.columns().local((layout.second + tiles[t].column) * wide));
      for (std::int64_t j = 0; j < d; ++j)
        std::copy_n(views.tiles[t].values + j * views.tiles[t].leading, d, out + j * to.leading());
    }
  }
  mirror_diagonal_blocks(to);
}

std::vector<double> diagonal(const Matrix& matrix) {
  const Grid& grid = matrix.grid();
  std::vector<double> values(to_size(matrix.rows().size), 0.0);
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j) {
    const std::int64_t column = matrix.columns().global(grid.column(), j);
    if (matrix.rows().owner(column) == grid.row())
      values[to_size(column)] = *matrix.at(matrix.rows().local(column), j);
  }
  grid.comm().sum(values.data(), matrix.rows().size);
  return values;
}

RegressionData regression_data(HeadLayout layout, FitRules rules, HeadGram fit,
                               std::optional<HeadGram> heldout, const AddOuterProduct& add_to_heldout) {
  rules.tokens = fit.tokens;
  rules.tokens_heldout = heldout ? heldout->tokens : 0;
  RegressionData data{std::move(layout), rules, std::move(fit), std::move(heldout), {}, {}, {}};
  data.sst = sums_of_squares(data.fit, rules);
  if (!data.heldout) return data;
  data.sst_heldout = sums_of_squares(*data.heldout, rules);
  recentre(*data.heldout, data.fit.mean, add_to_heldout);
  data.moment_diagonal = diagonal(data.heldout->matrix);
  return data;
}

Score score_head(const RegressionData& data, std::int64_t head, const double* explained, const double* errors,
                 bool deficient) {
  const auto column = to_size(head * data.layout.head_size);
  const double* sst_heldout = errors != nullptr ? &data.sst_heldout[column] : nullptr;
  return score_fit(data.rules, data.layout.target_size(), {explained, &data.sst[column], errors, sst_heldout},
                   deficient);
}

}  // namespace headspan
