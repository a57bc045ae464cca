#include "stats/regression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "dist/scalapack.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// The mean of 1 - sse / sst over the coordinates with variance; NaN when there is none.
double mean_r2(std::int64_t d, const double* explained_part, const double* sst, bool constant_counts_one) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    if (sst[j] > 0)
      sum += explained_part[j] / sst[j];
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

Factor factor_regressors(const double* gram, std::int64_t p, std::int64_t ld, const double* variance,
                         double tolerance) {
  std::vector<double> scale(to_size(p)), copy;
  for (std::int64_t i = 0; i < p; ++i)
    scale[to_size(i)] = variance[i] > 0 ? 1 / std::sqrt(gram[i + i * ld]) : 0;
  copy.reserve(to_size(p * p));
  for (std::int64_t j = 0; j < p; ++j) copy.insert(copy.end(), gram + j * ld, gram + j * ld + p);
  return factor_scaled(std::move(copy), scale, tolerance);
}

Factor factor_scaled(std::vector<double> gram, const std::vector<double>& scale, double tolerance) {
  const auto p = static_cast<std::int64_t>(scale.size());
  double largest = 0;
  for (std::int64_t j = 0; j < p; ++j) {
    for (std::int64_t i = 0; i < p; ++i) gram[to_size(i + j * p)] *= scale[to_size(i)] * scale[to_size(j)];
    double& diagonal = gram[to_size(j + j * p)];
    if (std::abs(diagonal - 1) < 1e-14) diagonal = 1;  // ties go to the first, not where rounding falls
    largest = std::max(largest, diagonal);
  }
  Factor factor{0, kNaN, {}, {}, {}};
  if (!(largest > tolerance)) return factor;  // dpstrf holds only the later pivots against the tolerance
  std::vector<int> pivots(to_size(p));
  std::vector<double> work(to_size(2 * p));
  const int n = to_int(p);
  int rank = 0, info = 0;
  dpstrf_("L", &n, gram.data(), &n, pivots.data(), &rank, &tolerance, work.data(), &info);
  if (info < 0) throw Error("LAPACK dpstrf: argument " + std::to_string(-info) + " is invalid");
  factor.rank = rank;
  factor.lower.assign(to_size(rank) * to_size(rank), 0.0);
  for (int k = 0; k < rank; ++k) {
    factor.order.push_back(pivots[to_size(k)] - 1);
    factor.scale.push_back(scale[to_size(factor.order.back())]);
    for (int i = k; i < rank; ++i) factor.lower[to_size(i + k * rank)] = gram[to_size(i + k * n)];
    const double diagonal = gram[to_size(k + k * n)];
    factor.pivot = k == 0 ? diagonal * diagonal : std::min(factor.pivot, diagonal * diagonal);
  }
  return factor;
}

std::vector<double> whiten(const Factor& factor, const double* cross, std::int64_t ld, std::int64_t m) {
  const std::int64_t rank = factor.rank;
  std::vector<double> x(to_size(rank * m));
  for (std::int64_t j = 0; j < m; ++j)
    for (std::int64_t i = 0; i < rank; ++i)
      x[to_size(i + j * rank)] = factor.scale[to_size(i)] * cross[factor.order[to_size(i)] + j * ld];
  if (x.empty()) return x;
  const int rows = to_int(rank), columns = to_int(m);
  const double one = 1;
  dtrsm_("L", "L", "N", "N", &rows, &columns, &one, factor.lower.data(), &rows, x.data(), &rows);
  return x;
}

std::vector<double> solve_maps(const Factor& factor, std::vector<double> x, std::int64_t m) {
  if (x.empty()) return x;
  const int rows = to_int(factor.rank), columns = to_int(m);
  const double one = 1;
  dtrsm_("L", "L", "T", "N", &rows, &columns, &one, factor.lower.data(), &rows, x.data(), &rows);
  for (std::int64_t j = 0; j < m; ++j)
    for (std::int64_t i = 0; i < factor.rank; ++i)
      x[to_size(i + j * factor.rank)] *= factor.scale[to_size(i)];
  return x;
}

std::vector<double> explained(const std::vector<double>& x, std::int64_t rows, std::int64_t m) {
  std::vector<double> sums(to_size(m), 0.0);
  for (std::int64_t j = 0; j < m; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      sums[to_size(j)] += x[to_size(i + j * rows)] * x[to_size(i + j * rows)];
  return sums;
}

std::vector<double> heldout_errors(const Factor& factor, const std::vector<double>& maps,
                                   const double* moment, std::int64_t ld, const double* cross,
                                   std::int64_t ld_cross, const double* diagonal, std::int64_t m) {
  const std::int64_t rank = factor.rank;
  std::vector<double> errors(diagonal, diagonal + m);
  if (rank == 0) return errors;
  std::vector<double> kept(to_size(rank * rank)), product(to_size(rank * m));
  for (std::int64_t j = 0; j < rank; ++j)
    for (std::int64_t i = 0; i < rank; ++i)
      kept[to_size(i + j * rank)] = moment[factor.order[to_size(i)] + factor.order[to_size(j)] * ld];
  const int rows = to_int(rank), columns = to_int(m);
  const double one = 1, zero = 0;
  dgemm_("N", "N", &rows, &columns, &rows, &one, kept.data(), &rows, maps.data(), &rows, &zero,
         product.data(), &rows);
  for (std::int64_t j = 0; j < m; ++j)
    for (std::int64_t i = 0; i < rank; ++i)
      errors[to_size(j)] +=
          maps[to_size(i + j * rank)] *
          (product[to_size(i + j * rank)] - 2 * cross[factor.order[to_size(i)] + j * ld_cross]);
  return errors;
}

Score score_fit(const FitRules& rules, std::int64_t d, const double* explained_part, const double* sst,
                const double* errors, const double* sst_heldout, bool deficient) {
  Score score{mean_r2(d, explained_part, sst, rules.paper), kNaN, kNaN, 0};
  double explained_sum = 0, total = 0;
  for (std::int64_t j = 0; j < d; ++j) {
    if (sst[j] > 0)
      explained_sum += explained_part[j];
    else
      score.status |= kConstant;
    total += sst[j];
  }
  if (total > 0) score.r2_weighted = explained_sum / total;
  if (errors != nullptr) {
    std::vector<double> explained_heldout(to_size(d));
    for (std::int64_t j = 0; j < d; ++j) {
      explained_heldout[to_size(j)] = sst_heldout[j] - errors[j];
      if (!(sst_heldout[j] > 0)) score.status |= kConstant;
    }
    score.r2_heldout = mean_r2(d, explained_heldout.data(), sst_heldout, false);
  }
  if (deficient) score.status |= kDeficient;
  for (const double value : {score.r2, score.r2_weighted})
    if (value < -rules.band() || value > 1 + rules.band()) score.status |= kOutsideBand;
  if (rules.paper) score.r2 = std::isnan(score.r2) ? score.r2 : std::max(-1.0, score.r2);
  return score;
}

Score no_score(std::uint8_t status) { return {kNaN, kNaN, kNaN, status}; }

}  // namespace headspan
