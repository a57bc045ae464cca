// What all other heads of a layer leave unexplained of each of its coordinates, for all heads at once from
// the inverse of the layer's Gram (stats/layer_ceiling.h has the formulas).
#pragma once

#include <optional>

#include "stats/regression_data.h"

namespace headspan {

/// By coordinate of the layer, on all ranks.
struct LayerResiduals {
  std::vector<double> errors;          ///< SSE on the fit part
  std::vector<double> errors_heldout;  ///< on the held-out part; empty without one
};

/// For the heads first .. last - 1. Nothing where the layer is not safely of full rank. Collective over the
/// Gram's grid.
std::optional<LayerResiduals> layer_residuals(const RegressionData& data, std::int64_t first,
                                              std::int64_t last);

}  // namespace headspan
