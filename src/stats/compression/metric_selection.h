// References of one target head chosen in attention's metric: forward selection by the least loss tr(M E),
// and that loss. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "stats/regression/regression.h"

namespace headspan {

/// References as positions in the list of candidates, best first, and what they leave.
struct MetricChoice {
  std::vector<std::int64_t> references;
  double loss = 0;
};

/// The moments of some candidates and a target, the target last and seen in the metric.
class MetricProblem {
 public:
  /// moments: G of the candidates and the target, [(candidates + 1) d, ..], column-major with the lower
  /// triangle of tiles valid; variance: of the same columns, 0 where one is constant; metric: M of the
  /// target, [d, d]; tokens: of G.
  MetricProblem(const FitRules& rules, std::int64_t d, std::vector<double> moments,
                std::vector<double> variance, const std::vector<double>& metric);

  std::int64_t candidates() const { return static_cast<std::int64_t>(variance_.size()) / d_ - 1; }

  /// Of each candidate alone.
  double loss_of(std::int64_t candidate) const;

  /// Forward selection of at most `most` among `allowed`, which are ascending by loss_of. Nothing allowed: no
  /// references and an infinite loss.
  MetricChoice choose(const std::vector<std::int64_t>& allowed, std::int64_t most) const;

 private:
  double loss_with(const std::vector<std::int64_t>& chosen) const;
  /// The moments of some candidates and the target, dense.
  std::vector<double> part(const std::vector<std::int64_t>& heads, std::vector<double>& variance) const;

  FitRules rules_;
  std::int64_t d_;
  std::vector<double> moments_, variance_;
};

}  // namespace headspan
