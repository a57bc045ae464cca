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

/// Everything is stored by slot, in blocks of d rows, column-major: first the remaining candidates, then the
/// chosen ones, then the target, so that products run over the remaining ones alone.
class ForwardSelection {
 public:
  ForwardSelection(const FitRules& rules, std::int64_t d, const ForwardProblem& problem,
                   const double* variance, LargeArray<double>& workspace)
      : rules_(rules),
        d_(d),
        pool_(static_cast<std::int64_t>(problem.heads.size()) - 1),
        remaining_(pool_),
        problem_(problem),
        moments_(to_size(pool_ * d * d)),
        cross_(moments_.size()),
        target_variance_(variance + pool_ * d, variance + (pool_ + 1) * d),
        projections_(workspace) {
    for (std::int64_t c = 0; c < pool_; ++c) {
      copy_moments(pool_, c, cross(c));
      copy_moments(c, c, moments(c));
      for (std::int64_t j = 0; j < d; ++j)
        scale_.push_back(variance[c * d + j] > 0 ? 1 / std::sqrt(moments(c)[j + j * d]) : 0);
    }
    for (std::int64_t head = 0; head <= pool_; ++head) head_.push_back(head);
  }

  std::vector<std::int64_t> run(std::int64_t count) {
    std::vector<std::int64_t> chosen;
    room_ = d_ * std::min(count, pool_);
    projections_.reserve((pool_ + 1) * d_ * room_);
    while (remaining_ > 0) {
      const std::int64_t regressors = problem_.source_size * static_cast<std::int64_t>(chosen.size() + 1);
      if (rules_.too_few(regressors)) break;
      const std::int64_t best = chosen.empty() ? 0 : best_slot(regressors);
      chosen.push_back(head_[to_size(best)]);
      swap_slots(best, --remaining_);
      if (static_cast<std::int64_t>(chosen.size()) == count) break;
      remove_explained(regressors);
    }
    return chosen;
  }

 private:
  double* moments(std::int64_t slot) { return moments_.data() + slot * d_ * d_; }
  double* cross(std::int64_t slot) { return cross_.data() + slot * d_ * d_; }
  double* scale(std::int64_t slot) { return scale_.data() + slot * d_; }
  double* projections(std::int64_t slot) { return projections_.data() + slot * d_ * room_; }

  /// Copies the raw cross moments of two heads, given by their positions in the problem: rows of a, columns
  /// of b.
  void copy_moments(std::int64_t a, std::int64_t b, double* out) const {
    const std::int64_t row = std::max(a, b), column = std::min(a, b);
    const TileView& tile = problem_.tiles[row * (row + 1) / 2 + column];
    const bool in_order = problem_.heads[to_size(row)] >= problem_.heads[to_size(column)];
    copy_tile(tile, d_, in_order != (a == row), out, d_);
  }

  /// Exchanges all that is stored of two candidates.
  void swap_slots(std::int64_t a, std::int64_t b) {
    if (a == b) return;
    std::swap(head_[to_size(a)], head_[to_size(b)]);
    std::swap_ranges(moments(a), moments(a + 1), moments(b));
    std::swap_ranges(cross(a), cross(a + 1), cross(b));
    std::swap_ranges(scale(a), scale(a + 1), scale(b));
    std::swap_ranges(projections(a), projections(a) + d_ * filled_, projections(b));
  }

  /// Factors the residual of a candidate. Pivots are measured on the scale of the raw coordinates, so that
  /// the rank guard is that of the joint regression.
  Factor residual_factor(std::int64_t slot, std::int64_t regressors) {
    return factor_scaled(moments(slot), d_, std::vector<double>(scale(slot), scale(slot) + d_),
                         rules_.pivot_tolerance(regressors));
  }

  /// Returns what a candidate adds to the target's R², times d.
  double gain(std::int64_t slot, std::int64_t regressors) {
    const std::vector<double> x = whiten(residual_factor(slot, regressors), cross(slot), d_, d_);
    const std::vector<double> gains = explained(x, d_);
    double sum = 0;
    for (std::int64_t j = 0; j < d_; ++j)
      if (target_variance_[to_size(j)] > 0) sum += gains[to_size(j)] / target_variance_[to_size(j)];
    return sum;
  }

  std::int64_t best_slot(std::int64_t regressors) {
    std::int64_t best = 0;
    double best_gain = -1;
    for (std::int64_t slot = 0; slot < remaining_; ++slot) {
      const double slot_gain = gain(slot, regressors);
      const bool earlier = head_[to_size(slot)] < head_[to_size(best)];
      if (slot_gain > best_gain || (slot_gain == best_gain && earlier)) {
        best = slot;
        best_gain = slot_gain;
      }
    }
    return best;
  }

  /// Subtracts from the moments of the remaining candidates what the head chosen last explains.
  void remove_explained(std::int64_t regressors) {
    const Factor factor = residual_factor(remaining_, regressors);
    const std::vector<double> u = whitener(factor, d_);
    std::vector<double> minus_ut(u.size());  // -U^T: [rank, d]
    for (std::int64_t k = 0; k < factor.rank; ++k)
      for (std::int64_t i = 0; i < d_; ++i) minus_ut[to_size(k + i * factor.rank)] = -u[to_size(i + k * d_)];
    const double* const target = project(pool_, factor.rank, minus_ut);
    for (std::int64_t slot = 0; slot < remaining_; ++slot) {
      const double* const z = project(slot, factor.rank, minus_ut);
      subtract_block_square(d_, factor.rank, z, moments(slot), d_);
      subtract_block_product(d_, d_, factor.rank, target, z, cross(slot), d_);
    }
    filled_ += factor.rank;
  }

  /// Projects the head in a slot on the whitened residuals of the head chosen last: [d, rank], stored after
  /// its earlier projections.
  const double* project(std::int64_t slot, std::int64_t rank, const std::vector<double>& minus_ut) {
    work_.resize(to_size(d_ * d_));
    copy_moments(head_[to_size(slot)], head_[to_size(remaining_)], work_.data());
    subtract_block_product(d_, d_, filled_, projections(slot), projections(remaining_), work_.data(), d_);
    double* const z = projections(slot) + d_ * filled_;
    std::fill_n(z, d_ * rank, 0.0);
    subtract_block_product(d_, rank, d_, work_.data(), minus_ut.data(), z, d_);
    return z;
  }

  const FitRules& rules_;
  std::int64_t d_;
  std::int64_t pool_;       // the number of candidates, and the target's slot
  std::int64_t remaining_;  // the number of candidates not chosen, and the slot of the one chosen last
  const ForwardProblem& problem_;
  std::vector<std::int64_t> head_;  // by slot: position in the problem
  std::vector<double> moments_;     // by slot: [d, d] of the residual, stale above the diagonal
  std::vector<double> cross_;       // by slot: [d, d] of the target's residual with this one
  std::vector<double> scale_;       // by slot: [d] diag^-1/2 of the raw moments
  std::vector<double> target_variance_;
  LargeArray<double>& projections_;  // by slot: [d, room] on whitened residuals of the chosen heads
  std::int64_t room_ = 0;
  std::int64_t filled_ = 0;  // columns of the projections in a slot so far
  std::vector<double> work_;
};

}  // namespace

std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d,
                                            const ForwardProblem& problem, const double* variance,
                                            std::int64_t count, LargeArray<double>& workspace) {
  return ForwardSelection(rules, d, problem, variance, workspace).run(count);
}

std::vector<std::vector<std::int64_t>> choose_forward(const RegressionData& data,
                                                      const std::vector<ForwardProblem>& problems,
                                                      std::int64_t count, const ForwardChoices& elsewhere) {
  const std::int64_t d = data.layout.head_size;
  std::vector<std::optional<std::vector<std::int64_t>>> known(problems.size());
  if (elsewhere) known = elsewhere(data, problems, count);
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
      choices[k] = forward_selection(data.rules, d, problems[k], variance.data(), count, workspace);
    }
  }
  return choices;
}

}  // namespace headspan
