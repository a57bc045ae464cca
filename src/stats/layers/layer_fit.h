// How well all heads that one of two streams has in a layer together predict each head that the other has in
// the layer of the same number: for two models, what a layer of one knows of that layer of the other. Not the
// other heads of a target's own stream (layer_ceiling.h).
#pragma once

#include "base/range.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The rows of this rank's targets, `HeadLayout::targets_of`. NaN and kNotComputed where the source stream
/// lacks the layer, NaN and kTooFewTokens where it has p >= n - 1 coordinates.
struct LayerFit {
  Range targets;
  std::vector<double> r2;            ///< [targets.count]
  std::vector<double> r2_heldout;    ///< [targets.count]; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< [targets.count] flags of Status
};

/// Fits the targets of two streams (HeadLayout::second). Ranks share the targets, and each gathers the layers
/// that its own need. Collective over the Gram's grid.
LayerFit fit_layers(const RegressionData& data);

}  // namespace headspan
