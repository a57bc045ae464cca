#include "stats/regression/forward.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"
#include "dist/threads.h"
#include "stats/regression/block_product.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// Everything is kept by place, in blocks of d rows, column-major: the candidates that are left, then the
/// chosen, then the target, so that products go over what is left alone.
class ForwardSelection {
 public:
  ForwardSelection(const FitRules& rules, std::int64_t d, const ForwardProblem& problem,
                   const double* variance, LargeArray<double>& workspace)
      : rules_(rules),
        d_(d),
        pool_(static_cast<std::int64_t>(problem.heads.size()) - 1),
        left_(pool_),
        problem_(problem),
        own_(to_size(pool_ * d * d)),
        cross_(own_.size()),
        target_variance_(variance + pool_ * d, variance + (pool_ + 1) * d),
        projections_(workspace) {
    for (std::int64_t c = 0; c < pool_; ++c) {
      copy_moments(pool_, c, cross(c));
      copy_moments(c, c, own(c));
      for (std::int64_t j = 0; j < d; ++j)
        scale_.push_back(variance[c * d + j] > 0 ? 1 / std::sqrt(own(c)[j + j * d]) : 0);
    }
    for (std::int64_t head = 0; head <= pool_; ++head) head_.push_back(head);
  }

  std::vector<std::int64_t> run(std::int64_t most) {
    std::vector<std::int64_t> chosen;
    room_ = d_ * std::min(most, pool_);
    projections_.reserve((pool_ + 1) * d_ * room_);
    while (left_ > 0) {
      const std::int64_t regressors = d_ * static_cast<std::int64_t>(chosen.size() + 1);
      if (rules_.too_few(regressors)) break;
      const std::int64_t place = chosen.empty() ? 0 : best_place(regressors);
      chosen.push_back(head_[to_size(place)]);
      swap_places(place, --left_);
      if (static_cast<std::int64_t>(chosen.size()) == most) break;
      remove_explained(regressors);
    }
    return chosen;
  }

 private:
  double* own(std::int64_t place) { return own_.data() + place * d_ * d_; }
  double* cross(std::int64_t place) { return cross_.data() + place * d_ * d_; }
  double* scale(std::int64_t place) { return scale_.data() + place * d_; }

  double* projections(std::int64_t place) { return projections_.data() + place * d_ * room_; }

  /// Of heads a and b, as they stand in the problem: rows of a, columns of b.
  void copy_moments(std::int64_t a, std::int64_t b, double* out) const {
    const std::int64_t row = std::max(a, b), column = std::min(a, b);
    const TileView& tile = problem_.tiles[row * (row + 1) / 2 + column];
    const bool lies = problem_.heads[to_size(row)] >= problem_.heads[to_size(column)];
    copy_tile(tile, d_, lies != (a == row), out, d_);
  }

  /// Exchanges all that is kept of two candidates.
  void swap_places(std::int64_t a, std::int64_t b) {
    if (a == b) return;
    std::swap(head_[to_size(a)], head_[to_size(b)]);
    std::swap_ranges(own(a), own(a + 1), own(b));
    std::swap_ranges(cross(a), cross(a + 1), cross(b));
    std::swap_ranges(scale(a), scale(a + 1), scale(b));
    std::swap_ranges(projections(a), projections(a) + d_ * known_, projections(b));
  }

  /// The residual factor of a candidate. Its pivots are measured on the scale of the raw coordinates, so that
  /// the guard is that of the joint regression.
  Factor residual_factor(std::int64_t place, std::int64_t regressors) {
    return factor_scaled(own(place), d_, std::vector<double>(scale(place), scale(place) + d_),
                         rules_.pivot_tolerance(regressors));
  }

  double gain(std::int64_t place, std::int64_t regressors) {
    const std::vector<double> x = whiten(residual_factor(place, regressors), cross(place), d_, d_);
    const std::vector<double> gains = explained(x, d_);
    double sum = 0;
    for (std::int64_t j = 0; j < d_; ++j)
      if (target_variance_[to_size(j)] > 0) sum += gains[to_size(j)] / target_variance_[to_size(j)];
    return sum;
  }

  std::int64_t best_place(std::int64_t regressors) {
    std::int64_t best = 0;
    double best_gain = -1;
    for (std::int64_t place = 0; place < left_; ++place) {
      const double own_gain = gain(place, regressors);
      const bool earlier = head_[to_size(place)] < head_[to_size(best)];
      if (own_gain > best_gain || (own_gain == best_gain && earlier)) {
        best = place;
        best_gain = own_gain;
      }
    }
    return best;
  }

  /// Takes from the moments of those left what the head chosen last explains of them.
  void remove_explained(std::int64_t regressors) {
    const Factor factor = residual_factor(left_, regressors);
    const std::vector<double> u = whitener(factor, d_);
    std::vector<double> minus_turned(u.size());  // [rank, d]
    for (std::int64_t k = 0; k < factor.rank; ++k)
      for (std::int64_t i = 0; i < d_; ++i)
        minus_turned[to_size(k + i * factor.rank)] = -u[to_size(i + k * d_)];
    const double* const of_target = project(pool_, factor.rank, minus_turned);
    for (std::int64_t place = 0; place < left_; ++place) {
      const double* const z = project(place, factor.rank, minus_turned);
      subtract_block_square(d_, factor.rank, z, own(place), d_);
      subtract_block_product(d_, d_, factor.rank, of_target, z, cross(place), d_);
    }
    known_ += factor.rank;
  }

  /// The head at a place on the whitened residuals of the one chosen last: [d, rank], kept after its others.
  const double* project(std::int64_t place, std::int64_t rank, const std::vector<double>& minus_turned) {
    work_.resize(to_size(d_ * d_));
    copy_moments(head_[to_size(place)], head_[to_size(left_)], work_.data());
    subtract_block_product(d_, d_, known_, projections(place), projections(left_), work_.data(), d_);
    double* const z = projections(place) + d_ * known_;
    std::fill_n(z, d_ * rank, 0.0);
    subtract_block_product(d_, rank, d_, work_.data(), minus_turned.data(), z, d_);
    return z;
  }

  const FitRules& rules_;
  std::int64_t d_;
  std::int64_t pool_;  // how many candidates there are, and the target's place
  std::int64_t left_;  // how many are not chosen, and the place of the one chosen last
  const ForwardProblem& problem_;
  std::vector<std::int64_t> head_;  // by place; positions in the problem
  std::vector<double> own_;         // [d, d] by place: the moments of each, less what the chosen explain, of
                                    // which what is above the diagonal may be stale
  std::vector<double> cross_;       // likewise of the target with each
  std::vector<double> scale_;       // [d] by place: diag^-1/2 of the raw moments
  std::vector<double> target_variance_;
  LargeArray<double>& projections_;  // [d, room] by place: each head on whitened residuals of the chosen
  std::int64_t room_ = 0;
  std::int64_t known_ = 0;  // of `room`
  std::vector<double> work_;
};

}  // namespace

std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d,
                                            const ForwardProblem& problem, const double* variance,
                                            std::int64_t most, LargeArray<double>& workspace) {
  return ForwardSelection(rules, d, problem, variance, workspace).run(most);
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
    LargeArray<double> workspace;
#pragma omp for schedule(dynamic)
    for (std::size_t k = 0; k < problems.size(); ++k) {
      if (known[k]) {
        choices[k] = std::move(*known[k]);
        continue;
      }
      const std::vector<double> variance = gather(data.sst, problems[k].heads, d);
      choices[k] = forward_selection(data.rules, d, problems[k], variance.data(), most, workspace);
    }
  }
  return choices;
}

}  // namespace headspan
