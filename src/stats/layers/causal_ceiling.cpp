#include "stats/layers/causal_ceiling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/local_algebra.h"
#include "stats/regression/head_moments.h"

namespace headspan {
namespace {

class BlockCholesky {
 public:
  explicit BlockCholesky(RegressionData& data)
      : data_(data), a_(data.fit.matrix), grid_(a_.grid()), d_(data.layout.head_size) {}

  std::vector<double> run() {
    std::vector<double> r2(to_size(data_.layout.heads()), std::numeric_limits<double>::quiet_NaN());
    const std::int64_t answered = answered_heads();
    for (std::int64_t t = 0; t < answered; ++t) {
      const std::vector<double> residual = residual_tile(t);
      if (t > 0) r2[to_size(t)] = score(t, residual);
      if (t + 1 < answered) eliminate(t, answered * d_, residual);
    }
    return r2;
  }

 private:
  /// Returns the number of heads with fewer than n - 1 coordinates before them.
  std::int64_t answered_heads() const {
    std::int64_t t = 0;
    while (t < data_.layout.heads() && !data_.rules.too_few(t * d_)) ++t;
    return t;
  }

  /// Returns the residual of G_tt: [d, d], both triangles, on all ranks. Collective.
  std::vector<double> residual_tile(std::int64_t t) const {
    std::vector<double> tile(to_size(d_ * d_));
    const int owner = a_.owner(t * d_, t * d_);
    if (grid_.comm().rank() == owner) {
      copy_tile({a_.at(a_.rows().local(t * d_), a_.columns().local(t * d_)), a_.leading()}, d_, false,
                tile.data(), d_);
      mirror_lower(tile.data(), d_, d_);
    }
    grid_.comm().broadcast(tile.data(), d_ * d_, owner);
    return tile;
  }

  double score(std::int64_t t, const std::vector<double>& residual) const {
    std::vector<double> explained(to_size(d_));
    for (std::int64_t j = 0; j < d_; ++j)
      explained[to_size(j)] = data_.sst[to_size(t * d_ + j)] - residual[to_size(j + j * d_)];
    return score_head(data_, t, explained.data(), nullptr, false).r2;
  }

  /// Subtracts what head t explains from all later heads, up to column `end`. Pivots are measured on the
  /// scale of the raw coordinates. Collective.
  void eliminate(std::int64_t t, std::int64_t end, const std::vector<double>& residual) {
    std::vector<double> scale;
    for (std::int64_t j = t * d_; j < (t + 1) * d_; ++j) {
      const double sst = data_.sst[to_size(j)];
      scale.push_back(sst > 0 ? 1 / std::sqrt(sst) : 0);
    }
    const Factor factor =
        factor_scaled(residual.data(), d_, scale, data_.rules.pivot_tolerance((t + 1) * d_));
    std::vector<double> u = whitener(factor, d_);
    u.resize(to_size(d_ * d_), 0.0);  // columns beyond the rank
    multiply_panel(t, end, u);
    update_trailing_matrix(a_, d_, (t + 1) * d_, end);
  }

  /// Multiplies the rows below head t in its columns by u: [d, d]. Local.
  void multiply_panel(std::int64_t t, std::int64_t end, const std::vector<double>& u) {
    if (a_.columns().owner(t * d_) != grid_.column()) return;
    const std::int64_t first = a_.rows().local_before(grid_.row(), (t + 1) * d_);
    const std::int64_t count = a_.rows().local_before(grid_.row(), end) - first;
    if (count == 0) return;
    double* panel = a_.at(first, a_.columns().local(t * d_));
    const std::vector<double> x = gemm("N", "N", count, d_, d_, panel, a_.leading(), u.data(), d_);
    for (std::int64_t j = 0; j < d_; ++j)
      std::copy_n(&x[to_size(j * count)], count, panel + j * a_.leading());
  }

  const RegressionData& data_;
  Matrix& a_;
  const Grid& grid_;
  std::int64_t d_;
};

}  // namespace

std::vector<double> causal_ceiling(RegressionData& data) { return BlockCholesky(data).run(); }

}  // namespace headspan
