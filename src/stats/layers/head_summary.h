// What each head looks like on its own, from the diagonal of the Gram of the fit part: variance, spectrum,
// effective rank; and the effective rank of each layer. R² also rises when activations collapse: these
// numbers stand beside it.
#pragma once

#include "base/range.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Rows of the targets of this rank's slab, except where noted.
struct HeadSummary {
  Range targets;
  std::vector<double> mean;            ///< [targets.count, d]
  std::vector<double> variance;        ///< [targets.count, d] SST / (n - 1)
  std::vector<double> spectrum;        ///< [targets.count, d] eigenvalues of G_tt / (n - 1), descending
  std::vector<double> effective_rank;  ///< [targets.count] (sum of eigenvalues)^2 / sum of their squares
  std::vector<double> effective_rank_layer;  ///< [layers] the same of each layer's covariance, on all ranks
};

/// NaN where n < 2, or where there is no variance for a rank. Collective over the Gram's grid.
HeadSummary summarise_heads(const RegressionData& data);

}  // namespace headspan
