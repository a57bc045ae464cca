// References of one target head, chosen by forward selection in attention's metric M
// (stats/compression/attention_metric.h), and the loss tr(M E) that they leave, E the target's residual
// covariance. Not which heads are targets. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "stats/regression/head_moments.h"

namespace headspan {

/// References as positions in the list of candidates, best first, and their loss.
struct MetricChoice {
  std::vector<std::int64_t> references;
  double loss = 0;
};

/// The moments of candidates and a target, the target last and multiplied by a root of the metric.
class MetricProblem {
 public:
  /// moments: G of the candidates and the target, [(candidates + 1) d, (candidates + 1) d], column-major,
  /// lower triangle of tiles valid; variance: [(candidates + 1) d], 0 for constant columns; metric: M of the
  /// target, [d, d].
  MetricProblem(const FitRules& rules, std::int64_t d, std::vector<double> moments,
                std::vector<double> variance, const std::vector<double>& metric);

  std::int64_t candidates() const { return static_cast<std::int64_t>(variance_.size()) / d_ - 1; }

  /// Returns the loss with one candidate as the only reference.
  double loss_of(std::int64_t candidate) const;

  /// Chooses at most `count` references among `allowed`, which ascend by loss_of. If it chooses none, the
  /// loss is infinite.
  MetricChoice choose(const std::vector<std::int64_t>& allowed, std::int64_t count) const;

 private:
  double loss_with(const std::vector<std::int64_t>& references) const;
  std::vector<std::int64_t> with_target(std::vector<std::int64_t> heads) const;
  /// Returns views of `tiles_among(heads)`.
  std::vector<TileView> tiles(const std::vector<std::int64_t>& heads) const;

  FitRules rules_;
  std::int64_t d_;
  std::vector<double> moments_, variance_;
};

}  // namespace headspan
