#include "stats/regression/regression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"
#include "stats/regression/pivoted_cholesky.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMomentColumns = 64;  // multiplied at a time, on and below the diagonal

/// Returns the mean of explained / sst over the coordinates with variance; NaN if there are none.
double mean_r2(std::int64_t d, const double* explained, const double* sst, bool constant_counts_one) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    if (sst[j] > 0)
      sum += explained[j] / sst[j];
    else if (constant_counts_one)
      sum += 1;
    else
      continue;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : kNaN;
}

}  // namespace

double FitRules::pivot_tolerance(std::int64_t regressors) const {
  const double eps64 = std::numeric_limits<double>::epsilon();
  const double eps32 = static_cast<double>(std::numeric_limits<float>::epsilon());
  return static_cast<double>(regressors) * (double_data && double_product ? eps64 : 10 * eps32 * eps32);
}

// An error e of the Gram's elements moves R² by at most e (1 + ||b||_1)^2, with the maps b at unit diagonal,
// which is e / pivot for the worst target. Sums grow with the tokens, if slowly, because panels are summed
// one after another; the roundings of values average out. Against exact arithmetic
// (tests/app/test_numerics.py; worst targets, 200 to 300 000 tokens) the error in FP64 is 0.05 to 22 times
// sum_rounding / pivot.
double FitRules::r2_error(double pivot) const {
  const auto n = static_cast<double>(tokens);
  return (16 + std::sqrt(n) / 16) * sum_rounding / pivot + value_rounding / std::sqrt(n * pivot);
}

Factor factor_regressors(const double* gram, std::int64_t p, std::int64_t ld, const double* variance,
                         double tolerance) {
  std::vector<double> scale(to_size(p));
  for (std::int64_t i = 0; i < p; ++i)
    scale[to_size(i)] = variance[i] > 0 ? 1 / std::sqrt(gram[i + i * ld]) : 0;
  return factor_scaled(gram, ld, scale, tolerance);
}

Factor factor_scaled(const double* gram, std::int64_t ld, const std::vector<double>& scale,
                     double tolerance) {
  const auto p = static_cast<std::int64_t>(scale.size());
  std::vector<double> scaled(to_size(p * p));
  for (std::int64_t j = 0; j < p; ++j) {
    const double* in = gram + j * ld;
    double* out = scaled.data() + j * p;
    for (std::int64_t i = j; i < p; ++i) out[i] = in[i] * (scale[to_size(i)] * scale[to_size(j)]);
    if (std::abs(out[j] - 1) < 1e-14) out[j] = 1;  // ties go to the first, whatever the rounding
  }
  Factor factor{0, kNaN, {}, {}, {}};
  std::vector<int> order(to_size(p));
  factor.rank = pivoted_cholesky(p, scaled.data(), tolerance, order.data());
  factor.lower.assign(to_size(factor.rank * factor.rank), 0.0);
  for (std::int64_t k = 0; k < factor.rank; ++k) {
    factor.order.push_back(order[to_size(k)]);
    factor.scale.push_back(scale[to_size(factor.order.back())]);
    const double* column = scaled.data() + k * p;
    std::copy(column + k, column + factor.rank, factor.lower.data() + k * (factor.rank + 1));
    factor.pivot = k == 0 ? column[k] * column[k] : std::min(factor.pivot, column[k] * column[k]);
  }
  return factor;
}

std::vector<double> whiten(const Factor& factor, const double* cross, std::int64_t ld, std::int64_t m) {
  std::vector<double> x(to_size(m * factor.rank));
  if (x.empty()) return x;
  for (std::int64_t k = 0; k < factor.rank; ++k) {
    const double* in = cross + factor.order[to_size(k)] * ld;
    for (std::int64_t j = 0; j < m; ++j) x[to_size(j + k * m)] = factor.scale[to_size(k)] * in[j];
  }
  const int rows = to_int(m), columns = to_int(factor.rank);
  const double one = 1;
  dtrsm_("R", "L", "T", "N", &rows, &columns, &one, factor.lower.data(), &columns, x.data(), &rows);
  return x;
}

std::vector<double> whitener(const Factor& factor, std::int64_t p) {
  std::vector<double> identity(to_size(p * p), 0.0);
  for (std::int64_t i = 0; i < p; ++i) identity[to_size(i * (p + 1))] = 1;
  return whiten(factor, identity.data(), p, p);
}

std::vector<double> solve_maps(const Factor& factor, std::int64_t p, std::vector<double> x, std::int64_t m) {
  std::vector<double> maps(to_size(m * p), 0.0);
  if (x.empty()) return maps;
  const int rows = to_int(m), columns = to_int(factor.rank);
  const double one = 1;
  dtrsm_("R", "L", "N", "N", &rows, &columns, &one, factor.lower.data(), &columns, x.data(), &rows);
  for (std::int64_t k = 0; k < factor.rank; ++k) {
    double* out = maps.data() + factor.order[to_size(k)] * m;
    for (std::int64_t j = 0; j < m; ++j) out[j] = factor.scale[to_size(k)] * x[to_size(j + k * m)];
  }
  return maps;
}

std::vector<double> explained(const std::vector<double>& x, std::int64_t m) {
  std::vector<double> sums(to_size(m), 0.0);
  for (const double* column = x.data(); column != x.data() + x.size(); column += m)
    for (std::int64_t j = 0; j < m; ++j) sums[to_size(j)] += column[j] * column[j];
  return sums;
}

std::vector<double> heldout_errors(const std::vector<double>& maps, std::int64_t p,
                                   const HeldoutMoments& moments, std::int64_t m) {
  std::vector<double> errors(moments.diagonal, moments.diagonal + m), product(to_size(m * kMomentColumns));
  const int rows = to_int(m), ld = to_int(moments.ld);
  const double one = 1, two = 2, zero = 0;
  for (std::int64_t first = 0; first < p; first += kMomentColumns) {
    const std::int64_t last = std::min(first + kMomentColumns, p);
    const int columns = to_int(last - first), below = to_int(p - last);
    const double *const w = &maps[to_size(first * m)], *const cross = moments.cross + first * moments.ld;
    const double* const moment = moments.regressors + first * moments.ld;
    dsymm_("R", "L", &rows, &columns, &one, moment + first, &ld, w, &rows, &zero, product.data(), &rows);
    if (below > 0)
      dgemm_("N", "N", &rows, &columns, &below, &two, &maps[to_size(last * m)], &rows, moment + last, &ld,
             &one, product.data(), &rows);
    for (std::int64_t i = 0; i < last - first; ++i)
      for (std::int64_t j = 0; j < m; ++j)
        errors[to_size(j)] += w[j + i * m] * (product[to_size(j + i * m)] - 2 * cross[j + i * moments.ld]);
  }
  return errors;
}

Score score_fit(const FitRules& rules, std::int64_t d, const TargetSums& sums, bool deficient) {
  Score score{mean_r2(d, sums.explained, sums.sst, rules.paper), kNaN, kNaN, 0};
  double explained_sum = 0, total = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    if (sums.sst[j] > 0)
      explained_sum += sums.explained[j];
    else
      score.status |= kConstant;
    total += sums.sst[j];
  }
  if (total > 0) score.r2_weighted = explained_sum / total;
  if (sums.errors != nullptr) {
    std::vector<double> explained_heldout(to_size(d));
    for (std::int64_t j = 0; j < d; ++j) {
      explained_heldout[to_size(j)] = sums.sst_heldout[j] - sums.errors[j];
      if (!(sums.sst_heldout[j] > 0)) score.status |= kConstant;
    }
    score.r2_heldout = mean_r2(d, explained_heldout.data(), sums.sst_heldout, false);
  }
  if (deficient) score.status |= kDeficient;
  for (const double value : {score.r2, score.r2_weighted})
    if (value < -rules.band() || value > 1 + rules.band()) score.status |= kOutsideBand;
  if (rules.paper) score.r2 = std::isnan(score.r2) ? score.r2 : std::max(-1.0, score.r2);
  return score;
}

}  // namespace headspan
