// The residual sums of squares of each head of a layer, given all other heads of the layer. They are computed
// for all heads at once from the inverse of the layer's Gram (formulas in stats/layers/layer_ceiling.h): over
// the whole grid, or each layer on one rank, which may use a device for it. Not the scores.
#pragma once

#include <functional>
#include <optional>

#include "stats/layers/layer_targets.h"
#include "stats/regression/head_moments.h"

namespace headspan {

/// A layer is not safely of full rank if the mean variance inflation of its coordinates, tr P / D, is above
/// this.
constexpr double kMostInflation = 1e4;

/// Residual sums of squares by coordinate of a layer.
struct LayerResiduals {
  std::vector<double> errors;          ///< SSE on the fit part
  std::vector<double> errors_heldout;  ///< on the held-out part; empty without one
};

/// Returns the residuals of the layer of heads first .. last - 1, on all ranks; nothing if it is not safely
/// of full rank. Collective over the Gram's grid.
std::optional<LayerResiduals> layer_residuals(const RegressionData& data, std::int64_t first,
                                              std::int64_t last);

/// A layer on one rank, as the tiles of `tiles_among(heads)`, d x d each.
struct LayerTiles {
  std::vector<std::int64_t> heads;
  std::int64_t d = 0;
  const TileView* fit = nullptr;
  const TileView* heldout = nullptr;  ///< second moments about fit's mean; null without a held-out part
  const double* sst = nullptr;        ///< [heads.size() * d] of the fit part, all above 0
};

/// Returns the residuals of a layer; nothing if it is not safely of full rank. Local.
using LayerInverse = std::function<std::optional<LayerResiduals>(const LayerTiles& layer)>;

/// Returns layer_residuals of each of `layers`; ranks take the layers in turn and call `invert` for theirs.
/// If it fails on one rank, AgreedError is thrown on all. Collective over the Gram's grid.
std::vector<std::optional<LayerResiduals>> layer_residuals_by_rank(const RegressionData& data,
                                                                   const std::vector<LayerTargets>& layers,
                                                                   const LayerInverse& invert);

}  // namespace headspan
