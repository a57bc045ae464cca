// How well all other heads of its layer together predict a head: the most that any choice of references
// within the layer can reach. Its null is (H - 1) d / m, which for a layer as wide as the hidden state is
// nearly 1.
//
// Two ways to the same numbers. A wide layer is inverted where it lies: with P = G_layer^-1, unit diagonal,
//
//   residual covariance of head t = P_tt^-1,   held-out errors = diag(P_tt^-1 (P M P)_tt P_tt^-1),
//
// by p?potrf, p?potri and p?gemm over the whole grid, or, where the ranks have devices, layers dealt out to
// them. A narrow layer, and one that is not safely of full rank
// (its coordinates' mean variance inflation, tr P / D, is above 1e4, or one is constant), is answered target
// by target with the pivoted regression of every other fit of headspan, ranks sharing the targets.
#pragma once

#include "base/range.h"
#include "stats/layers/layer_inverse.h"

namespace headspan {

/// Rows of this rank's slab of targets. NaN and kNotComputed for the only head of a layer, NaN and
/// kTooFewTokens where the others have p >= n - 1 coordinates.
struct LayerCeiling {
  Range targets;
  std::vector<double> r2;            ///< [targets.count]
  std::vector<double> r2_adjusted;   ///< likewise: 1 - (1 - R²)(n - 1)/(n - p - 1)
  std::vector<double> r2_heldout;    ///< likewise; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< likewise
};

constexpr std::int64_t kWideLayer = 512;  ///< columns

/// Layers of `invert_from` columns and more are inverted: over the whole grid, or by `invert` on one rank
/// each. Throws AgreedError on all ranks where that fails on one. Collective over the Gram's grid.
LayerCeiling layer_ceiling(const RegressionData& data, std::int64_t invert_from = kWideLayer,
                           const LayerInverse& invert = {});

}  // namespace headspan
