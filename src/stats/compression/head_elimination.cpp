#include "stats/compression/head_elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "dist/matrix/local_algebra.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

constexpr double kRidges[] = {1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2};  // relative to each variance

/// Adds `ridge` times each variance; variances that are almost 0 count as more.
void add_ridge(std::vector<double>& covariance, std::int64_t size, double ridge) {
  double largest = 0;
  for (std::int64_t i = 0; i < size; ++i) largest = std::max(largest, covariance[to_size(i * (size + 1))]);
  for (std::int64_t i = 0; i < size; ++i) {
    double& variance = covariance[to_size(i * (size + 1))];
    variance += ridge * std::max(variance, largest > 0 ? kRidges[0] * largest : 1);
  }
}

/// Sweeps the covariance. Rows of kept heads hold, in the columns of kept heads, the inverse of their
/// covariance, and in the columns of dropped heads the maps that predict these.
class BackwardElimination {
 public:
  /// inverse: that of the covariance of all heads, [D, D], both triangles.
  BackwardElimination(std::vector<double> inverse, const std::vector<double>& metric, std::int64_t heads,
                      std::int64_t d)
      : metric_(metric),
        heads_(heads),
        d_(d),
        size_(heads * d),
        a_(std::move(inverse)),
        kept_(to_size(heads), true) {}

  /// Returns nothing if a residual covariance is not positive definite, for rounding.
  std::optional<Elimination> run() {
    Elimination result{std::vector<double>(to_size(heads_ + 1), 0.0), {}};
    result.loss[0] = std::numeric_limits<double>::infinity();
    double loss = 0;
    for (std::int64_t kept = heads_ - 1; kept > 0; --kept) {
      std::vector<double> cost(to_size(heads_), std::numeric_limits<double>::infinity());
#pragma omp parallel for schedule(dynamic)
      for (std::int64_t h = 0; h < heads_; ++h)
        if (kept_[to_size(h)]) cost[to_size(h)] = cost_of(h);
      if (std::any_of(cost.begin(), cost.end(), [](double c) { return std::isnan(c); })) return {};
      const std::int64_t cheapest = std::min_element(cost.begin(), cost.end()) - cost.begin();
      loss += cost[to_size(cheapest)];
      drop(cheapest);
      result.dropped.push_back(cheapest);
      result.loss[to_size(kept)] = loss;
    }
    return result;
  }

 private:
  /// Returns the rows of head r in the columns of head c: [d, d].
  std::vector<double> block(std::int64_t r, std::int64_t c) const {
    std::vector<double> values;
    for (std::int64_t j = 0; j < d_; ++j) {
      const double* column = &a_[to_size(r * d_ + (c * d_ + j) * size_)];
      values.insert(values.end(), column, column + d_);
    }
    return values;
  }

  /// Returns the residual covariance of head h given the other kept heads: the inverse of its diagonal block.
  /// Returns an empty list if that is not positive definite.
  std::vector<double> residual(std::int64_t h) const {
    std::vector<double> q = block(h, h);
    if (!invert_positive_definite(q.data(), d_)) q.clear();
    return q;
  }

  /// Returns what dropping head h costs: tr(M_h q) for the head itself and tr(M_t B^T q B) for each dropped
  /// head t that it helps to predict. Returns NaN if it has no residual covariance.
  double cost_of(std::int64_t h) const {
    const std::vector<double> q = residual(h);
    if (q.empty()) return std::numeric_limits<double>::quiet_NaN();
    double cost = weighted_trace(h, q);
    for (std::int64_t t = 0; t < heads_; ++t) {
      if (kept_[to_size(t)]) continue;
      const std::vector<double> b = block(h, t);
      const std::vector<double> qb = gemm("N", "N", d_, d_, d_, q.data(), d_, b.data(), d_);
      cost += weighted_trace(t, gemm("T", "N", d_, d_, d_, b.data(), d_, qb.data(), d_));
    }
    return cost;
  }

  /// Returns tr(M C) for the metric M of a head.
  double weighted_trace(std::int64_t head, const std::vector<double>& c) const {
    return std::inner_product(c.begin(), c.end(), metric_.begin() + head * d_ * d_, 0.0);
  }

  /// Drops a head that has a residual covariance.
  void drop(std::int64_t h) {
    const std::vector<double> q = residual(h);
    const std::vector<double> map =
        gemm("N", "N", size_, d_, d_, &a_[to_size(h * d_ * size_)], size_, q.data(), d_);
    std::vector<double> rows(to_size(d_ * size_));  // of h
    for (std::int64_t j = 0; j < size_; ++j)
      std::copy_n(&a_[to_size(h * d_ + j * size_)], d_, &rows[to_size(j * d_)]);
    const int n = to_int(d_), size = to_int(size_);
    const double one = 1, minus_one = -1;
    dgemm_("N", "N", &size, &size, &n, &minus_one, map.data(), &size, rows.data(), &n, &one, a_.data(),
           &size);
    for (std::int64_t j = 0; j < d_; ++j)
      for (std::int64_t i = 0; i < size_; ++i)
        a_[to_size(i + (h * d_ + j) * size_)] = -map[to_size(i + j * size_)];
    kept_[to_size(h)] = false;
  }

  const std::vector<double>& metric_;
  std::int64_t heads_, d_, size_;
  std::vector<double> a_;  // [D, D]
  std::vector<bool> kept_;
};

/// Returns how many of `total` heads the next block keeps at the least loss, the most where several do; 0 if
/// none of them is possible. best: [heads kept in the blocks before it]; loss: [heads kept in it].
std::int64_t best_count(const std::vector<double>& best, const std::vector<double>& loss,
                        std::int64_t total) {
  double least = std::numeric_limits<double>::infinity();
  std::int64_t count = 0;
  for (std::int64_t n = std::min<std::int64_t>(total, static_cast<std::int64_t>(loss.size()) - 1); n >= 1;
       --n) {
    const double value = best[to_size(total - n)] + loss[to_size(n)];
    if (!(value < least)) continue;
    least = value;
    count = n;
  }
  return count;
}

}  // namespace

Elimination eliminate_heads(const std::vector<double>& covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d) {
  for (const double ridge : kRidges) {
    std::vector<double> inverse = covariance;
    add_ridge(inverse, heads * d, ridge);
    if (!invert_positive_definite(inverse.data(), heads * d)) continue;
    if (auto result = BackwardElimination(std::move(inverse), metric, heads, d).run()) return *result;
  }
  throw Error("the covariance of a layer's heads cannot be inverted");
}

std::vector<std::int64_t> allocate_heads(const std::vector<std::vector<double>>& losses,
                                         std::int64_t budget) {
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> best(to_size(budget + 1), infinite);  // by heads kept in the blocks so far: loss
  best[0] = 0;
  std::vector<std::vector<std::int64_t>> counts;  // [block][heads kept up to it]: heads kept in it
  for (const std::vector<double>& loss : losses) {
    std::vector<double> extended(best.size(), infinite);
    counts.emplace_back(best.size(), 0);
    for (std::int64_t total = 0; total <= budget; ++total) {
      const std::int64_t n = best_count(best, loss, total);
      counts.back()[to_size(total)] = n;
      if (n > 0) extended[to_size(total)] = best[to_size(total - n)] + loss[to_size(n)];
    }
    best = std::move(extended);
  }
  HS_ASSERT(best[to_size(budget)] < infinite);
  std::vector<std::int64_t> kept(losses.size());
  for (std::size_t block = losses.size(); block-- > 0;) {
    kept[block] = counts[block][to_size(budget)];
    budget -= kept[block];
  }
  return kept;
}

}  // namespace headspan
