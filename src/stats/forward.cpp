#include "stats/forward.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "dist/scalapack.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// c -= a^T b for a: [k, m], b: [k, n], c: [m, n].
void subtract_product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t k,
                      std::int64_t m, std::int64_t n, std::vector<double>& c) {
  if (k == 0) return;
  const int rows = to_int(m), columns = to_int(n), inner = to_int(k);
  const double minus_one = -1, one = 1;
  dgemm_("T", "N", &rows, &columns, &inner, &minus_one, a.data(), &inner, b.data(), &inner, &one, c.data(),
         &rows);
}

/// A candidate's moments, less what the chosen heads explain of them.
struct Candidate {
  std::int64_t position;
  std::vector<double> own;    // [d, d]
  std::vector<double> cross;  // [d, d] with the target
  std::vector<std::vector<double>>
      projections;  // for each chosen head: its whitened moments with this one, [rank, d]
};

class ForwardSelection {
 public:
  ForwardSelection(const FitRules& rules, std::int64_t d, std::int64_t pool, const double* moments,
                   const double* variance)
      : rules_(rules), d_(d), pool_(pool), ld_((pool + 1) * d), moments_(moments), variance_(variance) {
    for (std::int64_t c = 0; c < pool; ++c) candidates_.push_back({c, block(c, c), block(c, pool), {}});
  }

  std::vector<std::int64_t> run(std::int64_t most) {
    std::vector<std::int64_t> chosen;
    while (static_cast<std::int64_t>(chosen.size()) < most && !candidates_.empty() &&
           !rules_.too_few(d_ * static_cast<std::int64_t>(chosen.size() + 1))) {
      const std::size_t best = best_candidate(d_ * static_cast<std::int64_t>(chosen.size() + 1));
      chosen.push_back(candidates_[best].position);
      take(best);
    }
    return chosen;
  }

 private:
  std::vector<double> block(std::int64_t a, std::int64_t b) const {
    std::vector<double> values(to_size(d_ * d_));
    for (std::int64_t j = 0; j < d_; ++j)
      std::copy_n(moments_ + a * d_ + (b * d_ + j) * ld_, d_, values.data() + j * d_);
    return values;
  }

  /// The residual factor of a candidate. Its pivots are measured on the scale of the raw coordinates, so that
  /// the guard is that of the joint regression.
  Factor residual_factor(const Candidate& candidate, std::int64_t regressors) const {
    std::vector<double> scale(to_size(d_));
    for (std::int64_t i = 0; i < d_; ++i) {
      const std::int64_t column = candidate.position * d_ + i;
      scale[to_size(i)] = variance_[column] > 0 ? 1 / std::sqrt(moments_[column + column * ld_]) : 0;
    }
    return factor_scaled(candidate.own, scale, rules_.pivot_tolerance(regressors));
  }

  std::size_t best_candidate(std::int64_t regressors) {
    std::size_t best = 0;
    double best_gain = -1;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      Factor factor = residual_factor(candidates_[c], regressors);
      std::vector<double> x = whiten(factor, candidates_[c].cross.data(), d_, d_);
      const std::vector<double> gains = explained(x, factor.rank, d_);
      double gain = 0;
      for (std::int64_t j = 0; j < d_; ++j)
        if (variance_[pool_ * d_ + j] > 0) gain += gains[to_size(j)] / variance_[pool_ * d_ + j];
      if (gain > best_gain) {
        best = c;
        best_gain = gain;
        best_factor_ = std::move(factor);
        best_x_ = std::move(x);
      }
    }
    return best;
  }

  /// Moves the candidate to the chosen and removes what it explains from the others.
  void take(std::size_t best) {
    const Candidate chosen = std::move(candidates_[best]);
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(best));
    for (Candidate& other : candidates_) {
      std::vector<double> between = block(chosen.position, other.position);
      for (std::size_t k = 0; k < chosen.projections.size(); ++k) {
        const auto rank = static_cast<std::int64_t>(chosen.projections[k].size()) / d_;
        subtract_product(chosen.projections[k], other.projections[k], rank, d_, d_, between);
      }
      std::vector<double> z = whiten(best_factor_, between.data(), d_, d_);
      subtract_product(z, z, best_factor_.rank, d_, d_, other.own);
      subtract_product(z, best_x_, best_factor_.rank, d_, d_, other.cross);
      other.projections.push_back(std::move(z));
    }
  }

  const FitRules& rules_;
  std::int64_t d_;
  std::int64_t pool_;
  std::int64_t ld_;
  const double* moments_;
  const double* variance_;
  std::vector<Candidate> candidates_;
  Factor best_factor_;  // of the candidate that best_candidate found
  std::vector<double> best_x_;
};

}  // namespace

std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d, std::int64_t pool,
                                            const double* moments, const double* variance,
                                            std::int64_t most) {
  return ForwardSelection(rules, d, pool, moments, variance).run(most);
}

}  // namespace headspan
