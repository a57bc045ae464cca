// What numbers mean nothing: the R² of one head from one other when all they share is the hidden state, of
// which each is a random isotropic projection. Closed forms for pairs; not the nulls of joint regressions, of
// ceilings or of rankings.
//
// For head size d and hidden size m the R² of one coordinate is Beta(d/2, (m-d)/2), with mean d/m. The R² of
// a head is the mean of d such, taken as independent and described by the Beta of the same mean and variance:
// Beta(mu nu, (1-mu) nu) with mu = d/m and nu = d (m+2)/2 - 1. An R² of x reads f + (1-f) x in-sample, with
// the noise floor f = d/(n-1) (less 2 x (1-x)/(n+1) at most, which is left out).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace headspan {

/// NaN everywhere when the hidden size is unknown or the floor is 1 and more; 1 everywhere when d >= m.
class PairNull {
 public:
  /// `hidden_size` 0: unknown. `noise_floor`: d/(n-1) for what is read in-sample, 0 for what is held out.
  PairNull(std::int64_t head_size, std::int64_t hidden_size, double noise_floor);

  double mean() const;

  /// The expected share of pairs above `r2`, which is below 1.
  double share_above(double r2) const;

  /// The mean and the median over targets of the best of its sources. sources: [targets] how many each has;
  /// targets with none are left out.
  double mean_best(const std::vector<std::int64_t>& sources) const;
  double median_best(const std::vector<std::int64_t>& sources) const;

 private:
  double as_read(double r2) const { return floor_ + (1 - floor_) * r2; }
  double best_below(const std::map<std::int64_t, double>& shares, double r2) const;

  double mean_;   // mu; NaN: unknown
  double floor_;  // f
  double alpha_, beta_;
};

}  // namespace headspan
