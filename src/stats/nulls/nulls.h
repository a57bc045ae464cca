// The null of pairwise R²: its distribution if two heads share nothing but the hidden state, of which each is
// a random isotropic projection. Closed forms for pairs; not the nulls of joint regressions, ceilings or
// rankings.
//
// For head size d and hidden size m, the R² of one coordinate is distributed as Beta(d/2, (m-d)/2), with mean
// d/m. The R² of a head is the mean over d coordinates. It is approximated by the Beta distribution with the
// mean and variance that it would have if they were independent: Beta(mu nu, (1-mu) nu) with mu = d/m and nu
// = d (m+2)/2 - 1. In-sample, an R² of x is observed as f + (1-f) x with the noise floor f = d/(n-1); this
// neglects at most 2 x (1-x)/(n+1).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace headspan {

/// All values are NaN if the hidden size is unknown or the floor is at least 1, and 1 if d >= m.
class PairNull {
 public:
  /// `hidden_size`: 0 if unknown; `noise_floor`: d/(n-1) for in-sample R², 0 for held-out R².
  PairNull(std::int64_t head_size, std::int64_t hidden_size, double noise_floor);

  /// Returns the expected R² of a pair.
  double mean() const;

  /// Returns the expected fraction of pairs above `r2` < 1.
  double share_above(double r2) const;

  /// Return the mean and the median over targets of the R² from the best of their sources. sources: [targets]
  /// the number of sources of each; targets without sources are left out.
  double mean_best(const std::vector<std::int64_t>& sources) const;
  double median_best(const std::vector<std::int64_t>& sources) const;

 private:
  double observed(double r2) const { return floor_ + (1 - floor_) * r2; }
  double best_below(const std::map<std::int64_t, double>& shares, double r2) const;

  double mean_;   // mu; NaN: unknown
  double floor_;  // f
  double alpha_, beta_;
};

}  // namespace headspan
