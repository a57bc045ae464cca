#include "stats/compression/metric_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/local_algebra.h"
#include "stats/regression/forward.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// Returns S with S S^T = M.
std::vector<double> root(std::vector<double> metric, std::int64_t d) {
  const std::vector<double> values = local_eigenvectors(metric.data(), d);
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = 0; i < d; ++i)
      metric[to_size(i + j * d)] *= std::sqrt(std::max(0.0, values[to_size(j)]));
  return metric;
}

}  // namespace

MetricProblem::MetricProblem(const FitRules& rules, std::int64_t d, std::vector<double> moments,
                             std::vector<double> variance, const std::vector<double>& metric)
    : rules_(rules), d_(d), moments_(std::move(moments)), variance_(std::move(variance)) {
  const auto size = static_cast<std::int64_t>(variance_.size()), first = size - d;
  const std::vector<double> s = root(metric, d);
  double* target = &moments_[to_size(first)];  // the rows of the target
  mirror_lower(target + first * size, d, size);
  const std::vector<double> rows = gemm("T", "N", d, size, d, s.data(), d, target, size);
  const std::vector<double> tile = gemm("N", "N", d, d, d, &rows[to_size(first * d)], d, s.data(), d);
  for (std::int64_t j = 0; j < size; ++j) {
    const double* column = j < first ? &rows[to_size(j * d)] : &tile[to_size((j - first) * d)];
    std::copy_n(column, d, target + j * size);
  }
  std::fill(variance_.begin() + first, variance_.end(),
            1.0);  // a coordinate counts by its loss, not by its loss relative to its variance
}

std::vector<std::int64_t> MetricProblem::with_target(std::vector<std::int64_t> heads) const {
  heads.push_back(candidates());
  return heads;
}

std::vector<TileView> MetricProblem::tiles(const std::vector<std::int64_t>& heads) const {
  const auto size = static_cast<std::int64_t>(variance_.size());
  std::vector<TileView> views;
  for (const Tile& tile : tiles_among(heads))
    views.push_back({&moments_[to_size((tile.row + tile.column * size) * d_)], size});
  return views;
}

double MetricProblem::loss_with(const std::vector<std::int64_t>& references) const {
  const std::vector<std::int64_t> heads = with_target(references);
  const std::int64_t p = static_cast<std::int64_t>(references.size()) * d_, side = p + d_;
  std::vector<double> dense(to_size(side * side));
  assemble(heads, d_, tiles(heads).data(), dense.data());
  const std::vector<double> variance = gather(variance_, heads, d_);
  const Factor factor = factor_regressors(dense.data(), p, side, variance.data(), rules_.pivot_tolerance(p));
  const std::vector<double> gains = explained(whiten(factor, &dense[to_size(p)], side, d_), d_);
  double loss = 0;
  for (std::int64_t j = 0; j < d_; ++j) loss += dense[to_size((p + j) * (side + 1))] - gains[to_size(j)];
  return std::max(0.0, loss) / static_cast<double>(rules_.tokens);
}

double MetricProblem::loss_of(std::int64_t candidate) const { return loss_with({candidate}); }

MetricChoice MetricProblem::choose(const std::vector<std::int64_t>& allowed, std::int64_t count) const {
  MetricChoice choice{{}, std::numeric_limits<double>::infinity()};
  if (allowed.empty()) return choice;
  const std::vector<std::int64_t> heads = with_target(allowed);
  const std::vector<TileView> views = tiles(heads);
  const std::vector<double> variance = gather(variance_, heads, d_);
  LargeArray<double> workspace;
  for (const std::int64_t at :
       forward_selection(rules_, d_, {heads, views.data(), d_}, variance.data(), count, workspace))
    choice.references.push_back(allowed[to_size(at)]);
  if (!choice.references.empty()) choice.loss = loss_with(choice.references);
  return choice;
}

}  // namespace headspan
