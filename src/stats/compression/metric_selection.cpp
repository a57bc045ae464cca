#include "stats/compression/metric_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"
#include "stats/regression/forward.h"

namespace headspan {
namespace {

/// S with S S^T = M.
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
  const int n = to_int(d), columns = to_int(size), ld = columns;
  const double one = 1, zero = 0;
  std::vector<double> rows(to_size(d * size));
  double* target = &moments_[to_size(first)];
  for (std::int64_t j = first; j < size; ++j)  // the target's own tile, whole
    for (std::int64_t i = first; i < j; ++i)
      moments_[to_size(i + j * size)] = moments_[to_size(j + i * size)];
  dgemm_("T", "N", &n, &columns, &n, &one, s.data(), &n, target, &ld, &zero, rows.data(), &n);
  for (std::int64_t j = 0; j < size; ++j) std::copy_n(&rows[to_size(j * d)], d, target + j * size);
  std::vector<double> own(to_size(d * d));
  dgemm_("N", "N", &n, &n, &n, &one, &rows[to_size(first * d)], &n, s.data(), &n, &zero, own.data(), &n);
  for (std::int64_t j = 0; j < d; ++j) {
    std::copy_n(&own[to_size(j * d)], d, target + (first + j) * size);
    variance_[to_size(first + j)] = 1;  // coordinates count by what they lose, not by their share of it
  }
}

std::vector<double> MetricProblem::part(const std::vector<std::int64_t>& heads,
                                        std::vector<double>& variance) const {
  const auto size = static_cast<std::int64_t>(variance_.size());
  std::vector<std::int64_t> all(heads);
  all.push_back(candidates());
  const std::int64_t side = static_cast<std::int64_t>(all.size()) * d_;
  std::vector<double> dense(to_size(side * side));
  variance.clear();
  for (std::size_t b = 0; b < all.size(); ++b) {
    variance.insert(variance.end(), variance_.begin() + all[b] * d_, variance_.begin() + (all[b] + 1) * d_);
    for (std::size_t a = b; a < all.size(); ++a)
      for (std::int64_t j = 0; j < d_; ++j)
        for (std::int64_t i = 0; i < d_; ++i) {
          std::int64_t row = all[a] * d_ + i, column = all[b] * d_ + j;
          if (all[a] < all[b]) std::swap(row, column);
          dense[to_size(static_cast<std::int64_t>(a) * d_ + i +
                        (static_cast<std::int64_t>(b) * d_ + j) * side)] =
              moments_[to_size(row + column * size)];
        }
  }
  return dense;
}

double MetricProblem::loss_with(const std::vector<std::int64_t>& chosen) const {
  std::vector<double> variance;
  const std::vector<double> dense = part(chosen, variance);
  const std::int64_t p = static_cast<std::int64_t>(chosen.size()) * d_, side = p + d_;
  const Factor factor = factor_regressors(dense.data(), p, side, variance.data(), rules_.pivot_tolerance(p));
  const std::vector<double> gained = explained(whiten(factor, &dense[to_size(p)], side, d_), d_);
  double loss = 0;
  for (std::int64_t j = 0; j < d_; ++j) loss += dense[to_size((p + j) * (side + 1))] - gained[to_size(j)];
  return std::max(0.0, loss) / static_cast<double>(rules_.tokens);
}

double MetricProblem::loss_of(std::int64_t candidate) const { return loss_with({candidate}); }

MetricChoice MetricProblem::choose(const std::vector<std::int64_t>& allowed, std::int64_t most) const {
  if (allowed.empty()) return {{}, std::numeric_limits<double>::infinity()};
  std::vector<double> variance;
  const std::vector<double> dense = part(allowed, variance);
  const auto heads = static_cast<std::int64_t>(allowed.size()) + 1;
  ForwardProblem problem;
  std::vector<TileView> tiles;
  for (std::int64_t row = 0; row < heads; ++row) {
    problem.heads.push_back(row);  // as they stand in `dense`
    for (std::int64_t column = 0; column <= row; ++column)
      tiles.push_back({dense.data() + row * d_ + column * d_ * heads * d_, heads * d_});
  }
  problem.tiles = tiles.data();
  MetricChoice choice;
  LargeArray<double> workspace;
  for (const std::int64_t at : forward_selection(rules_, d_, problem, variance.data(), most, workspace))
    choice.references.push_back(allowed[to_size(at)]);
  choice.loss =
      choice.references.empty() ? std::numeric_limits<double>::infinity() : loss_with(choice.references);
  return choice;
}

}  // namespace headspan
