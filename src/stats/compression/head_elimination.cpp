#include "stats/compression/head_elimination.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

constexpr double kRidge = 1e-12;  // of each variance

/// The inverse of a symmetric positive definite matrix, whole; lower triangle valid on entry.
void invert(std::vector<double>& a, std::int64_t size) {
  const int n = to_int(size);
  int info = 0;
  dpotrf_("L", &n, a.data(), &n, &info);
  if (info == 0) dpotri_("L", &n, a.data(), &n, &info);
  if (info != 0) throw Error("the covariance of a layer's heads cannot be inverted");
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t i = 0; i < j; ++i) a[to_size(i + j * size)] = a[to_size(j + i * size)];
}

/// Rows of kept heads hold, in the columns of kept heads, the inverse of their covariance, and in those of
/// dropped heads the maps that predict them.
class Backward {
 public:
  Backward(std::vector<double> covariance, const std::vector<double>& metric, std::int64_t heads,
           std::int64_t d)
      : metric_(metric), heads_(heads), d_(d), size_(heads * d), a_(std::move(covariance)) {
    double largest = 0;
    for (std::int64_t i = 0; i < size_; ++i) largest = std::max(largest, a_[to_size(i * (size_ + 1))]);
    for (std::int64_t i = 0; i < size_; ++i) {
      double& variance = a_[to_size(i * (size_ + 1))];
      variance += kRidge * std::max(variance, largest > 0 ? kRidge * largest : 1);
    }
    invert(a_, size_);
    kept_.assign(to_size(heads), true);
  }

  Elimination run() {
    Elimination result{std::vector<double>(to_size(heads_ + 1), 0.0), {}};
    result.loss[0] = std::numeric_limits<double>::infinity();
    double loss = 0;
    for (std::int64_t left = heads_; left > 1; --left) {
      std::vector<double> cost(to_size(heads_), std::numeric_limits<double>::infinity());
#pragma omp parallel for schedule(dynamic)
      for (std::int64_t h = 0; h < heads_; ++h)
        if (kept_[to_size(h)]) cost[to_size(h)] = cost_of(h);
      const std::int64_t least = std::min_element(cost.begin(), cost.end()) - cost.begin();
      loss += cost[to_size(least)];
      drop(least);
      result.dropped.push_back(least);
      result.loss[to_size(left - 1)] = loss;
    }
    return result;
  }

 private:
  /// [d, d] rows of head r, columns of head c.
  std::vector<double> block(std::int64_t r, std::int64_t c) const {
    std::vector<double> values;
    for (std::int64_t j = 0; j < d_; ++j) {
      const double* column = &a_[to_size(r * d_ + (c * d_ + j) * size_)];
      values.insert(values.end(), column, column + d_);
    }
    return values;
  }

  /// What is left of head h when the other kept heads have predicted it: the inverse of its block.
  std::vector<double> residual(std::int64_t h) const {
    std::vector<double> q = block(h, h);
    invert(q, d_);
    return q;
  }

  /// tr(M q) for the head itself, and tr(M_t B^T q B) for each dropped head t that it helps to predict.
  double cost_of(std::int64_t h) const {
    const std::vector<double> q = residual(h);
    double cost = weighted_trace(h, q.data());
    std::vector<double> half(to_size(d_ * d_)), whole(half);
    const int n = to_int(d_);
    const double one = 1, zero = 0;
    for (std::int64_t t = 0; t < heads_; ++t) {
      if (kept_[to_size(t)]) continue;
      const std::vector<double> b = block(h, t);
      dgemm_("N", "N", &n, &n, &n, &one, q.data(), &n, b.data(), &n, &zero, half.data(), &n);
      dgemm_("T", "N", &n, &n, &n, &one, b.data(), &n, half.data(), &n, &zero, whole.data(), &n);
      cost += weighted_trace(t, whole.data());
    }
    return cost;
  }

  double weighted_trace(std::int64_t head, const double* covariance) const {
    const double* m = &metric_[to_size(head * d_ * d_)];
    double trace = 0;
    for (std::int64_t i = 0; i < d_ * d_; ++i) trace += m[i] * covariance[i];
    return trace;
  }

  void drop(std::int64_t h) {
    const std::vector<double> q = residual(h);
    std::vector<double> map(to_size(size_ * d_)),
        row(to_size(d_ * size_));  // columns of h times q; rows of h
    const int n = to_int(d_), size = to_int(size_);
    const double one = 1, zero = 0, minus_one = -1;
    dgemm_("N", "N", &size, &n, &n, &one, &a_[to_size(h * d_ * size_)], &size, q.data(), &n, &zero,
           map.data(), &size);
    for (std::int64_t j = 0; j < size_; ++j)
      std::copy_n(&a_[to_size(h * d_ + j * size_)], d_, &row[to_size(j * d_)]);
    dgemm_("N", "N", &size, &size, &n, &minus_one, map.data(), &size, row.data(), &n, &one, a_.data(), &size);
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

}  // namespace

Elimination eliminate_heads(std::vector<double> covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d) {
  return Backward(std::move(covariance), metric, heads, d).run();
}

std::vector<std::int64_t> allocate_heads(const std::vector<std::vector<double>>& losses,
                                         std::int64_t budget) {
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> best(to_size(budget + 1), infinite);  // by heads kept in the blocks so far
  best[0] = 0;
  std::vector<std::vector<std::int64_t>> counts;  // [block][heads kept up to it] of the block
  for (const std::vector<double>& own : losses) {
    std::vector<double> longer(best.size(), infinite);
    counts.emplace_back(best.size(), 0);
    for (std::int64_t total = 0; total <= budget; ++total)
      for (std::int64_t n = std::min<std::int64_t>(total, static_cast<std::int64_t>(own.size()) - 1); n >= 1;
           --n) {
        const double value = best[to_size(total - n)] + own[to_size(n)];
        if (!(value < longer[to_size(total)])) continue;
        longer[to_size(total)] = value;
        counts.back()[to_size(total)] = n;
      }
    best = std::move(longer);
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
