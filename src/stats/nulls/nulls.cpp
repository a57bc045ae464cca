#include "stats/nulls/nulls.h"

#include <algorithm>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <limits>
#include <utility>

namespace headspan {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Returns the fraction of targets by their number of sources, among targets that have sources.
std::map<std::int64_t, double> shares_of(const std::vector<std::int64_t>& sources) {
  std::map<std::int64_t, double> shares;
  const auto with_source =
      std::count_if(sources.begin(), sources.end(), [](auto count) { return count > 0; });
  for (const std::int64_t count : sources)
    if (count > 0) shares[count] += 1.0 / static_cast<double>(with_source);
  return shares;
}

}  // namespace

PairNull::PairNull(std::int64_t head_size, std::int64_t hidden_size, double noise_floor)
    : floor_(noise_floor) {
  const auto d = static_cast<double>(head_size), m = static_cast<double>(hidden_size);
  mean_ = hidden_size > 0 && noise_floor < 1 ? std::min(1.0, d / m) : kNan;
  const double nu = d * (m + 2) / 2 - 1;
  alpha_ = mean_ * nu;
  beta_ = (1 - mean_) * nu;
}

double PairNull::mean() const { return observed(mean_); }

double PairNull::share_above(double r2) const {
  if (!(mean_ < 1)) return mean_;
  const double x = (r2 - floor_) / (1 - floor_);
  return x > 0 ? boost::math::ibetac(alpha_, beta_, x) : 1;
}

/// Returns the expected fraction of targets whose best source is below `r2`: mean_t F(r2)^C_t, where C_t is
/// the number of sources of t.
double PairNull::best_below(const std::map<std::int64_t, double>& shares, double r2) const {
  const double below = boost::math::ibeta(alpha_, beta_, r2);
  double sum = 0;
  for (const auto& [count, share] : shares) sum += share * std::pow(below, count);
  return sum;
}

/// Integrates 1 - mean_t F^C_t. Its step from 1 to 0 may be as narrow as 1e-4, which needs many halvings.
double PairNull::mean_best(const std::vector<std::int64_t>& sources) const {
  const auto shares = shares_of(sources);
  if (shares.empty()) return kNan;
  if (!(mean_ < 1)) return observed(mean_);
  const auto above = [&](double x) { return 1 - best_below(shares, x); };
  constexpr unsigned kHalvings = 20;
  constexpr double kTolerance = 1e-9;
  return observed(
      boost::math::quadrature::gauss_kronrod<double, 15>::integrate(above, 0.0, 1.0, kHalvings, kTolerance));
}

/// Solves mean_t F(x)^C_t = 1/2.
double PairNull::median_best(const std::vector<std::int64_t>& sources) const {
  const auto shares = shares_of(sources);
  if (shares.empty()) return kNan;
  if (!(mean_ < 1)) return observed(mean_);
  const auto [low, high] =
      boost::math::tools::bisect([&](double x) { return best_below(shares, x) - 0.5; }, 0.0, 1.0,
                                 [](double a, double b) { return b - a < 1e-9; });
  return observed((low + high) / 2);
}

}  // namespace headspan
