// What all other heads of a layer leave unexplained of each of its coordinates, for all heads at once from
// the inverse of the layer's Gram (stats/layers/layer_ceiling.h has the formulas): over the whole grid, or
// each layer by one rank, where that has a device to do it on.
#pragma once

#include <functional>
#include <optional>

#include "stats/layers/layer_targets.h"
#include "stats/regression/head_moments.h"

namespace headspan {

/// A layer is not inverted where its coordinates' mean variance inflation, tr P / D, is above this.
constexpr double kMostInflation = 1e4;

/// By coordinate of the layer.
struct LayerResiduals {
  std::vector<double> errors;          ///< SSE on the fit part
  std::vector<double> errors_heldout;  ///< on the held-out part; empty without one
};

/// For the heads first .. last - 1, on all ranks. Nothing where the layer is not safely of full rank.
/// Collective over the Gram's grid.
std::optional<LayerResiduals> layer_residuals(const RegressionData& data, std::int64_t first,
                                              std::int64_t last);

/// A layer on one rank: the tiles of `tiles_among(heads)`, d x d each.
struct LayerTiles {
  std::vector<std::int64_t> heads;
  std::int64_t d = 0;
  const TileView* fit = nullptr;
  const TileView* heldout = nullptr;  ///< of the second moment about fit's mean; null without a held-out part
  const double* sst = nullptr;        ///< [heads.size() * d] of the fit part, all above 0
};

/// Inverts one layer. Nothing where the layer is not safely of full rank. Local.
using LayerInverse = std::function<std::optional<LayerResiduals>(const LayerTiles& layer)>;

/// layer_residuals of each of `layers`, which are dealt out over the ranks in turn, each inverted by one.
/// Throws AgreedError on all ranks where `invert` fails on one. Collective over the Gram's grid.
std::vector<std::optional<LayerResiduals>> dealt_layer_residuals(const RegressionData& data,
                                                                 const std::vector<LayerTargets>& layers,
                                                                 const LayerInverse& invert);

}  // namespace headspan
