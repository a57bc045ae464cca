#include "stats/layers/head_angles.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/range.h"
#include "dist/matrix/local_algebra.h"
#include "dist/threads.h"
#include "stats/layers/layer_targets.h"
#include "stats/regression/head_moments.h"

namespace headspan {
namespace {

/// Returns ||U_r^T B U_t||_F^2 for B = G_rt: [d, d]; u_r: [d, rank of r], u_t: [d, rank of t].
double squared_cosines(const std::vector<double>& u_r, const TileView& b, const std::vector<double>& u_t,
                       std::int64_t d) {
  const std::int64_t rank_r = static_cast<std::int64_t>(u_r.size()) / d,
                     rank_t = static_cast<std::int64_t>(u_t.size()) / d;
  if (rank_r == 0 || rank_t == 0) return 0;
  const std::vector<double> bu = gemm("N", "N", d, rank_t, d, b.values, b.leading, u_t.data(), d);
  const std::vector<double> x = gemm("T", "N", rank_r, rank_t, d, u_r.data(), d, bu.data(), d);
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
}

class Angles {
 public:
  Angles(const Matrix& gram, const HeadLayout& layout, const std::vector<double>& variance, double tolerance)
      : gram_(gram),
        layout_(layout),
        variance_(variance),
        tolerance_(tolerance),
        d_(layout.head_size),
        layers_(whole_layers(layout)) {}

  HeadAngles compute() {
    empty_table();
    const Comm& comm = gram_.grid().comm();
    const auto shares = layer_targets(layout_, range_of(layout_.heads(), comm.size(), comm.rank()));
    const std::int64_t rounds = comm.max(static_cast<std::int64_t>(shares.size()));
    for (std::int64_t round = 0; round < rounds; ++round)
      run_layer(round < static_cast<std::int64_t>(shares.size()) ? shares[to_size(round)] : LayerTargets{});
    comm.sum(angles_.cosines.data(), static_cast<std::int64_t>(angles_.cosines.size()));
    comm.sum(angles_.rank.data(), static_cast<std::int64_t>(angles_.rank.size()));
    mark_missing();
    return std::move(angles_);
  }

 private:
  void empty_table() {
    angles_.layers = static_cast<std::int64_t>(layers_.size());
    for (const LayerTargets& layer : layers_)
      angles_.heads = std::max(angles_.heads, layer.last - layer.first);
    angles_.cosines.assign(to_size(angles_.layers * angles_.heads * angles_.heads), 0.0);
    angles_.rank.assign(to_size(angles_.layers * angles_.heads), 0);
  }

  double& cosines(std::int64_t layer, std::int64_t r, std::int64_t t) {
    return angles_.cosines[to_size((layer * angles_.heads + r) * angles_.heads + t)];
  }

  /// Computes the pairs (t, r), r <= t, for the targets t of a share, which may be empty. Collective.
  void run_layer(const LayerTargets& share) {
    const std::int64_t size = share.last - share.first;
    std::vector<Tile> tiles = diagonal_tiles({share.first, size});
    const auto pairs = tiles.size();
    for (std::int64_t t = share.targets.first; t < share.targets.first + share.targets.count; ++t)
      for (std::int64_t r = share.first; r < t; ++r) tiles.push_back({t, r});
    const TileViews views = view_tiles(gram_, d_, tiles);
    if (size == 0) return;
    const std::int64_t layer =
        std::find_if(layers_.begin(), layers_.end(), [&](const auto& l) { return l.first == share.first; }) -
        layers_.begin();
    const std::vector<std::vector<double>> whiteners = factor_heads(share, layer, views);
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t k = pairs; k < tiles.size(); ++k) {
      const std::int64_t t = tiles[k].row - share.first, r = tiles[k].column - share.first;
      cosines(layer, t, r) = cosines(layer, r, t) =
          squared_cosines(whiteners[to_size(t)], views.tiles[k], whiteners[to_size(r)], d_);
    }
  }

  /// Returns the whiteners of all heads of the layer; fills in the ranks and diagonal cosines of the targets.
  std::vector<std::vector<double>> factor_heads(const LayerTargets& share, std::int64_t layer,
                                                const TileViews& views) {
    std::vector<std::vector<double>> whiteners(to_size(share.last - share.first));
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t h = 0; h < share.last - share.first; ++h) {
      const TileView& tile = views.tiles[to_size(h)];
      const Factor factor = factor_regressors(tile.values, d_, tile.leading,
                                              &variance_[to_size((share.first + h) * d_)], tolerance_);
      whiteners[to_size(h)] = whitener(factor, d_);
      const std::int64_t head = share.first + h;
      if (head < share.targets.first || head >= share.targets.first + share.targets.count) continue;
      angles_.rank[to_size(layer * angles_.heads + h)] = to_int(factor.rank);
      cosines(layer, h, h) = static_cast<double>(factor.rank);
    }
    return whiteners;
  }

  void mark_missing() {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t layer = 0; layer < angles_.layers; ++layer) {
      const std::int64_t size = layers_[to_size(layer)].last - layers_[to_size(layer)].first;
      for (std::int64_t r = 0; r < angles_.heads; ++r)
        for (std::int64_t t = r < size ? size : 0; t < angles_.heads; ++t) cosines(layer, r, t) = nan;
    }
  }

  const Matrix& gram_;
  const HeadLayout& layout_;
  const std::vector<double>& variance_;
  double tolerance_;
  std::int64_t d_;
  std::vector<LayerTargets> layers_;
  HeadAngles angles_;
};

}  // namespace

HeadAngles head_angles(const Matrix& gram, const HeadLayout& layout, const std::vector<double>& variance,
                       double tolerance) {
  return Angles(gram, layout, variance, tolerance).compute();
}

}  // namespace headspan
