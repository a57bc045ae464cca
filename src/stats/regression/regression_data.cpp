#include "stats/regression/regression_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"

namespace headspan {
namespace {

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
  const Range range = range_of(targets(), ranks, rank);
  return {first_target + range.first, range.count};
}

int HeadLayout::owner_of_target(int ranks, std::int64_t target) const {
  return range_owner(targets(), ranks, target - first_target);
}

HeadLayout cross_layout(const HeadLayout& sources, const HeadLayout& targets, std::int64_t source_delay) {
  HS_ASSERT(sources.head_size == targets.head_size && sources.first_target == 0 && sources.heads() > 0);
  HeadLayout layout = sources;
  layout.layer.insert(layout.layer.end(), targets.layer.begin(), targets.layer.end());
  layout.head.insert(layout.head.end(), targets.head.begin(), targets.head.end());
  layout.first_target = sources.heads();
  layout.source_delay = source_delay;
  return layout;
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
  const std::int64_t d = data.layout.head_size;
  const auto column = to_size(head * d);
  const double* sst_heldout = errors != nullptr ? &data.sst_heldout[column] : nullptr;
  return score_fit(data.rules, d, {explained, &data.sst[column], errors, sst_heldout}, deficient);
}

}  // namespace headspan
