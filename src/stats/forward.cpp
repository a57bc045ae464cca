#include "stats/forward.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "dist/large_array.h"
#include "dist/scalapack.h"
#include "dist/threads.h"
#include "stats/joint_fit.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// c -= a b^T for a: [m, k], b: [n, k], c: [m, n].
void subtract_product(const double* a, std::int64_t lda, const double* b, std::int64_t ldb, std::int64_t m,
                      std::int64_t n, std::int64_t k, double* c) {
  if (k == 0) return;
  const int rows = to_int(m), columns = to_int(n), inner = to_int(k), ld_a = to_int(lda), ld_b = to_int(ldb);
  const double minus_one = -1, one = 1;
  dgemm_("N", "T", &rows, &columns, &inner, &minus_one, a, &ld_a, b, &ld_b, &one, c, &rows);
}

class ForwardSelection {
 public:
  ForwardSelection(const FitRules& rules, std::int64_t d, std::int64_t pool, const double* moments,
                   const double* variance)
      : rules_(rules), d_(d), pool_(pool), ld_((pool + 1) * d), moments_(moments), variance_(variance) {
    own_.reserve(to_size(pool * d * d));
    cross_.reserve(own_.capacity());
    for (std::int64_t c = 0; c < pool; ++c) {
      left_.push_back(c);
      append_block(pool, c, cross_);
      append_block(c, c, own_);
    }
    for (std::int64_t j = 0; j < pool * d; ++j)
      scale_.push_back(variance[j] > 0 ? 1 / std::sqrt(moments[j + j * ld_]) : 0);
  }

  std::vector<std::int64_t> run(std::int64_t most) {
    std::vector<std::int64_t> chosen;
    projections_.reserve(to_size(ld_ * d_ * std::min(most, pool_)));
    while (!left_.empty()) {
      const std::int64_t regressors = d_ * static_cast<std::int64_t>(chosen.size() + 1);
      if (rules_.too_few(regressors)) break;
      chosen.push_back(chosen.empty() ? left_.front() : best_candidate(regressors));
      left_.erase(std::find(left_.begin(), left_.end(), chosen.back()));
      if (static_cast<std::int64_t>(chosen.size()) == most) break;
      remove_explained_by(chosen.back(), regressors);
    }
    return chosen;
  }

 private:
  void append_block(std::int64_t a, std::int64_t b, std::vector<double>& out) const {
    for (std::int64_t j = 0; j < d_; ++j) {
      const double* column = moments_ + a * d_ + (b * d_ + j) * ld_;
      out.insert(out.end(), column, column + d_);
    }
  }

  /// The residual factor of a candidate. Its pivots are measured on the scale of the raw coordinates, so that
  /// the guard is that of the joint regression.
  Factor residual_factor(std::int64_t c, std::int64_t regressors) const {
    const auto scale = scale_.begin() + c * d_;
    return factor_scaled(&own_[to_size(c * d_ * d_)], d_, std::vector<double>(scale, scale + d_),
                         rules_.pivot_tolerance(regressors));
  }

  std::int64_t best_candidate(std::int64_t regressors) const {
    std::int64_t best = left_.front();
    double best_gain = -1;
    for (const std::int64_t c : left_) {
      const Factor factor = residual_factor(c, regressors);
      const std::vector<double> gains = explained(whiten(factor, &cross_[to_size(c * d_ * d_)], d_, d_), d_);
      double gain = 0;
      for (std::int64_t j = 0; j < d_; ++j)
        if (variance_[pool_ * d_ + j] > 0) gain += gains[to_size(j)] / variance_[pool_ * d_ + j];
      if (gain > best_gain) {
        best = c;
        best_gain = gain;
      }
    }
    return best;
  }

  /// The moments of all heads, the target last, with head c: [(pool + 1) d, d].
  std::vector<double> moments_with(std::int64_t c) const {
    std::vector<double> values(to_size(ld_ * d_));
    for (std::int64_t j = 0; j < d_; ++j) {
      const std::int64_t column = c * d_ + j;
      double* out = values.data() + j * ld_;
      for (std::int64_t i = 0; i < c * d_; ++i) out[i] = moments_[column + i * ld_];
      std::copy(moments_ + c * d_ + column * ld_, moments_ + (column + 1) * ld_, out + c * d_);
    }
    return values;
  }

  /// a b for a: [(pool + 1) d, d], b: [d, n].
  std::vector<double> times(const std::vector<double>& a, const std::vector<double>& b,
                            std::int64_t n) const {
    std::vector<double> c(to_size(ld_ * n));
    if (n == 0) return c;
    const int rows = to_int(ld_), columns = to_int(n), inner = to_int(d_);
    const double one = 1, zero = 0;
    dgemm_("N", "N", &rows, &columns, &inner, &one, a.data(), &rows, b.data(), &inner, &zero, c.data(),
           &rows);
    return c;
  }

  /// Takes from the moments of those left what the chosen head explains of them.
  void remove_explained_by(std::int64_t chosen, std::int64_t regressors) {
    std::vector<double> residual = moments_with(chosen);
    const auto known = static_cast<std::int64_t>(projections_.size()) / ld_;
    subtract_product(projections_.data(), ld_, projections_.data() + chosen * d_, ld_, ld_, d_, known,
                     residual.data());
    const Factor factor = residual_factor(chosen, regressors);
    const std::vector<double> z = times(residual, whitener(factor, d_), factor.rank);
    for (const std::int64_t c : left_)
      subtract_product(&z[to_size(c * d_)], ld_, &z[to_size(c * d_)], ld_, d_, d_, factor.rank,
                       &own_[to_size(c * d_ * d_)]);
    subtract_product(&z[to_size(pool_ * d_)], ld_, z.data(), ld_, d_, pool_ * d_, factor.rank, cross_.data());
    projections_.insert(projections_.end(), z.begin(), z.end());
  }

  const FitRules& rules_;
  std::int64_t d_;
  std::int64_t pool_;
  std::int64_t ld_;
  const double* moments_;
  const double* variance_;
  std::vector<std::int64_t> left_;  // candidates, the better pairwise source first
  std::vector<double> own_;         // [pool] of [d, d]: the moments of each, less what the chosen explain
  std::vector<double> cross_;       // [d, pool d] of the target with each, likewise
  std::vector<double> scale_;       // [pool d] diag^-1/2 of the raw moments
  std::vector<double>
      projections_;  // [(pool + 1) d, ranks of the chosen]: all heads on whitened residuals of the chosen
};

}  // namespace

std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d, std::int64_t pool,
                                            const double* moments, const double* variance,
                                            std::int64_t most) {
  return ForwardSelection(rules, d, pool, moments, variance).run(most);
}

std::vector<std::vector<std::int64_t>> choose_forward(const RegressionData& data,
                                                      const std::vector<ForwardProblem>& problems,
                                                      std::int64_t most, const ForwardChoices& elsewhere) {
  const std::int64_t d = data.layout.head_size;
  std::vector<std::optional<std::vector<std::int64_t>>> known(problems.size());
  if (elsewhere) known = elsewhere(data, problems, most);
  std::vector<std::vector<std::int64_t>> choices(problems.size());
  const SingleThreadedBlas single;
#pragma omp parallel
  {
    LargeArray<double> moments;
#pragma omp for schedule(dynamic)
    for (std::size_t k = 0; k < problems.size(); ++k) {
      if (known[k]) {
        choices[k] = std::move(*known[k]);
        continue;
      }
      const std::vector<std::int64_t>& heads = problems[k].heads;
      const auto count = static_cast<std::int64_t>(heads.size());
      moments.reserve(count * d * count * d);
      assemble(heads, d, problems[k].tiles, moments.data());
      const std::vector<double> variance = gather(data.sst, heads, d);
      choices[k] = forward_selection(data.rules, d, count - 1, moments.data(), variance.data(), most);
    }
  }
  return choices;
}

}  // namespace headspan
