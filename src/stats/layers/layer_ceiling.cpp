#include "stats/layers/layer_ceiling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/threads.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Ceilings {
 public:
  Ceilings(const RegressionData& data, std::int64_t invert_from, const LayerInverse& invert)
      : data_(data), invert_from_(invert_from), invert_(invert), d_(data.layout.head_size) {}

  LayerCeiling compute() {
    ceiling_.targets = range_of(data_.layout.heads(), data_.comm().size(), data_.comm().rank());
    const std::size_t n = to_size(ceiling_.targets.count);
    ceiling_.r2.assign(n, kNaN);
    ceiling_.r2_adjusted = ceiling_.r2_heldout = ceiling_.r2;
    ceiling_.status.assign(n, kNotComputed);
    std::vector<LayerTargets> wide, target_by_target;
    for (const LayerTargets& layer : whole_layers(data_.layout))
      if (!has_no_fit(layer))
        (regressors(layer) + d_ < invert_from_ ? target_by_target : wide).push_back(layer);
    const auto residuals = residuals_of(wide);
    for (std::size_t k = 0; k < wide.size(); ++k)
      if (residuals[k])
        score(wide[k], *residuals[k]);
      else
        target_by_target.push_back(wide[k]);
    regress(target_by_target);
    return std::move(ceiling_);
  }

 private:
  std::int64_t regressors(const LayerTargets& layer) const { return (layer.last - layer.first - 1) * d_; }

  /// Returns the heads of a layer that are this rank's targets.
  Range targets_in(const LayerTargets& layer) const {
    const std::int64_t first = std::max(layer.first, ceiling_.targets.first);
    const std::int64_t last = std::min(layer.last, ceiling_.targets.first + ceiling_.targets.count);
    return {first, std::max<std::int64_t>(0, last - first)};
  }

  /// Returns whether a layer has no fit, because it has one head or too many regressors; sets the status
  /// then.
  bool has_no_fit(const LayerTargets& layer) {
    if (regressors(layer) == 0) return true;
    if (!data_.rules.too_few(regressors(layer))) return false;
    const Range targets = targets_in(layer);
    std::fill_n(ceiling_.status.begin() + (targets.first - ceiling_.targets.first), targets.count,
                kTooFewTokens);
    return true;
  }

  /// Returns the residuals by layer; nothing for layers that have to be fitted target by target. Collective.
  std::vector<std::optional<LayerResiduals>> residuals_of(const std::vector<LayerTargets>& layers) const {
    if (invert_) return layer_residuals_by_rank(data_, layers, invert_);
    std::vector<std::optional<LayerResiduals>> residuals(layers.size());
    std::transform(layers.begin(), layers.end(), residuals.begin(), [&](const LayerTargets& layer) {
      return layer_residuals(data_, layer.first, layer.last);
    });
    return residuals;
  }

  void score(const LayerTargets& layer, const LayerResiduals& residuals) {
    const Range targets = targets_in(layer);
    for (std::int64_t t = targets.first; t < targets.first + targets.count; ++t) {
      const std::size_t column = to_size(t * d_), in_layer = to_size((t - layer.first) * d_);
      std::vector<double> explained(to_size(d_));
      for (std::size_t j = 0; j < to_size(d_); ++j)
        explained[j] = data_.sst[column + j] - residuals.errors[in_layer + j];
      const double* errors = data_.heldout ? &residuals.errors_heldout[in_layer] : nullptr;
      store(t, regressors(layer), score_head(data_, t, explained.data(), errors, false));
    }
  }

  void store(std::int64_t target, std::int64_t regressors, const Score& score) {
    const std::size_t row = to_size(target - ceiling_.targets.first);
    const auto n = static_cast<double>(data_.rules.tokens), p = static_cast<double>(regressors);
    ceiling_.r2[row] = score.r2;
    ceiling_.r2_adjusted[row] = 1 - (1 - score.r2) * (n - 1) / (n - p - 1);
    ceiling_.r2_heldout[row] = score.r2_heldout;
    ceiling_.status[row] = score.status;
  }

  /// Fits this rank's targets of the layers, one layer after another. Collective.
  void regress(const std::vector<LayerTargets>& layers) {
    std::vector<LayerTargets> shares;
    for (const LayerTargets& share : layer_targets(data_.layout, ceiling_.targets))
      if (std::any_of(layers.begin(), layers.end(), [&](const auto& l) { return l.first == share.first; }))
        shares.push_back(share);
    const std::int64_t rounds = data_.comm().max(static_cast<std::int64_t>(shares.size()));
    for (std::int64_t round = 0; round < rounds; ++round)
      regress_layer(round < static_cast<std::int64_t>(shares.size()) ? shares[to_size(round)]
                                                                     : LayerTargets{});
  }

  /// Fits the targets of a share, which may be empty. Collective.
  void regress_layer(const LayerTargets& share) {
    const std::vector<Tile> tiles = tiles_among(share.heads());
    const TileViews fit = view_tiles(data_.fit.matrix, d_, tiles);
    TileViews heldout;
    if (data_.heldout) heldout = view_tiles(data_.heldout->matrix, d_, tiles);
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t t = share.targets.first; t < share.targets.first + share.targets.count; ++t) {
      std::vector<std::int64_t> heads = share.heads();
      heads.erase(heads.begin() + (t - share.first));
      heads.push_back(t);
      const std::vector<double> gram = dense(share, heads, fit);
      const std::vector<double> moment = data_.heldout ? dense(share, heads, heldout) : std::vector<double>();
      const std::int64_t sources = static_cast<std::int64_t>(heads.size()) - 1;
      const JointFit result =
          fit_jointly(data_, heads, sources, gram.data(), data_.heldout ? moment.data() : nullptr);
      store(t, sources * d_, result.score);
    }
  }

  /// Returns the moments of the layer's heads in the order of `heads`, from the views of
  /// tiles_among(share.heads()).
  std::vector<double> dense(const LayerTargets& share, const std::vector<std::int64_t>& heads,
                            const TileViews& views) const {
    std::vector<TileView> tiles;
    for (const Tile& tile : tiles_among(heads)) {
      const std::int64_t row = tile.row - share.first, column = tile.column - share.first;
      tiles.push_back(views.tiles[to_size(row * (row + 1) / 2 + column)]);
    }
    std::vector<double> values(heads.size() * heads.size() * to_size(d_ * d_));
    assemble(heads, d_, tiles.data(), values.data());
    return values;
  }

  const RegressionData& data_;
  std::int64_t invert_from_;
  const LayerInverse& invert_;
  std::int64_t d_;
  LayerCeiling ceiling_;
};

}  // namespace

LayerCeiling layer_ceiling(const RegressionData& data, std::int64_t invert_from, const LayerInverse& invert) {
  return Ceilings(data, invert_from, invert).compute();
}

}  // namespace headspan
