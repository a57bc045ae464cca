#include "stats/layers/head_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/threads.h"
#include "stats/regression/head_moments.h"

namespace headspan {
namespace {

/// Returns the participation ratio (sum of eigenvalues)^2 / sum of squares.
double participation(double trace, double squares) {
  return squares > 0 ? trace * trace / squares : std::numeric_limits<double>::quiet_NaN();
}

/// Returns the effective rank (tr G_l)^2 / ||G_l||_F^2 of each layer's block of G, on all ranks. Collective.
std::vector<double> layer_ranks(const RegressionData& data) {
  const Matrix& g = data.fit.matrix;
  const Grid& grid = g.grid();
  const auto& layer = data.layout.layer;
  const std::int64_t d = data.layout.head_size;
  const auto layer_of = [&](std::int64_t column) { return layer[to_size(column / d)]; };
  std::vector<std::int64_t> layers(layer);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  std::vector<double> trace(layers.size(), 0.0), squares(layers.size(), 0.0);
  for (std::int64_t j = 0; j < g.local_columns(); ++j) {
    const std::int64_t column = g.columns().global(grid.column(), j);
    const auto l = to_size(std::lower_bound(layers.begin(), layers.end(), layer_of(column)) - layers.begin());
    const std::int64_t end = std::upper_bound(layer.begin(), layer.end(), layers[l]) - layer.begin();
    for (std::int64_t i = g.rows().local_before(grid.row(), column);
         i < g.rows().local_before(grid.row(), end * d); ++i) {
      const double value = *g.at(i, j);
      const bool on_diagonal = g.rows().global(grid.row(), i) == column;
      squares[l] += (on_diagonal ? 1 : 2) * value * value;
      if (on_diagonal) trace[l] += value;
    }
  }
  grid.comm().sum(trace.data(), static_cast<std::int64_t>(trace.size()));
  grid.comm().sum(squares.data(), static_cast<std::int64_t>(squares.size()));
  for (std::size_t l = 0; l < layers.size(); ++l) trace[l] = participation(trace[l], squares[l]);
  return trace;
}

}  // namespace

HeadSummary summarise_heads(const RegressionData& data) {
  const std::int64_t d = data.layout.head_size;
  const Comm& comm = data.comm();
  HeadSummary summary;
  summary.targets = range_of(data.layout.heads(), comm.size(), comm.rank());
  const std::vector<double> tiles = fetch_tiles(data.fit.matrix, d, diagonal_tiles(summary.targets));
  const std::size_t n = to_size(summary.targets.count);
  summary.mean.assign(data.fit.mean.begin() + summary.targets.first * d,
                      data.fit.mean.begin() + (summary.targets.first + summary.targets.count) * d);
  summary.variance.assign(n * to_size(d), std::numeric_limits<double>::quiet_NaN());
  summary.spectrum = summary.variance;
  summary.effective_rank.assign(n, std::numeric_limits<double>::quiet_NaN());
  summary.effective_rank_layer = layer_ranks(data);
  if (data.fit.tokens < 2) return summary;
  const double scale = 1 / static_cast<double>(data.fit.tokens - 1);
  const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t t = 0; t < summary.targets.count; ++t) {
    std::vector<double> covariance(tiles.begin() + t * d * d, tiles.begin() + (t + 1) * d * d);
    double trace = 0, squares = 0;
    for (double& value : covariance) {
      value *= scale;
      squares += value * value;
    }
    for (std::int64_t j = 0; j < d; ++j) {
      summary.variance[to_size(t * d + j)] = covariance[to_size(j + j * d)];
      trace += covariance[to_size(j + j * d)];
    }
    const auto values = local_eigenvalues(covariance.data(), d, d);
    std::copy(values.begin(), values.end(), summary.spectrum.begin() + t * d);
    summary.effective_rank[to_size(t)] = participation(trace, squares);
  }
  return summary;
}

}  // namespace headspan
