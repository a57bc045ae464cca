#include "stats/regression/regression_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headspan {
namespace {

/// SST of each column, 0 where it is rounding alone, SST <= n (8 eps |mean|)^2, or too small to be summed.
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

std::vector<double> diagonal(const Matrix& matrix) {
  const Grid& grid = matrix.grid();
  std::vector<double> values(static_cast<std::size_t>(matrix.rows().size), 0.0);
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j) {
    const std::int64_t column = matrix.columns().global(grid.column(), j);
    if (matrix.rows().owner(column) == grid.row())
      values[static_cast<std::size_t>(column)] = *matrix.at(matrix.rows().local(column), j);
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

}  // namespace headspan
