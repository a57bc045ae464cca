// How well all other heads of its layer together predict a head: an upper bound for any references within the
// layer. Its null (the value for random heads) is (H - 1) d / m, which is nearly 1 for a layer as wide as the
// hidden state.
//
// A wide layer is inverted. With P = G_layer^-1, scaled to unit diagonal,
//
//   residual covariance of head t = P_tt^-1,   held-out errors = diag(P_tt^-1 (P M P)_tt P_tt^-1),
//
// by p?potrf, p?potri and p?gemm over the whole grid, or on the ranks' devices, one layer per rank. A narrow
// layer is fitted target by target, with the pivoted regression of all other fits; ranks share the targets.
// So is a layer that is not safely of full rank: one with a constant coordinate, or with a mean variance
// inflation of its coordinates, tr P / D, above 1e4.
#pragma once

#include "base/range.h"
#include "stats/layers/layer_inverse.h"

namespace headspan {

/// The rows of this rank's targets. NaN and kNotComputed for the only head of a layer, NaN and kTooFewTokens
/// if the others have p >= n - 1 coordinates.
struct LayerCeiling {
  Range targets;
  std::vector<double> r2;            ///< [targets.count]
  std::vector<double> r2_adjusted;   ///< [targets.count] 1 - (1 - R²)(n - 1)/(n - p - 1)
  std::vector<double> r2_heldout;    ///< [targets.count]; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< [targets.count] flags of Status
};

constexpr std::int64_t kWideLayer = 512;  ///< columns

/// Computes the ceilings. Layers of `invert_from` columns and more are inverted: by `invert` on one rank
/// each, if given, else over the whole grid. If `invert` fails on one rank, AgreedError is thrown on all.
/// Collective over the Gram's grid.
LayerCeiling layer_ceiling(const RegressionData& data, std::int64_t invert_from = kWideLayer,
                           const LayerInverse& invert = {});

}  // namespace headspan
