// Statistics of each head alone, from the diagonal tiles of the fit part's Gram: mean, variance, spectrum and
// effective rank; and the effective rank of each layer. They are reported beside R², which also rises when
// activations collapse. Not the relations between heads.
#pragma once

#include "base/range.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The rows of this rank's targets, except where noted.
struct HeadSummary {
  Range targets;
  std::vector<double> mean;                  ///< [targets.count, d]
  std::vector<double> variance;              ///< [targets.count, d] SST / (n - 1)
  std::vector<double> spectrum;              ///< [targets.count, d] eigenvalues of G_tt / (n - 1), descending
  std::vector<double> effective_rank;        ///< [targets.count] (sum of eigenvalues)^2 / sum of squares
  std::vector<double> effective_rank_layer;  ///< [layers] the same for each layer's covariance, on all ranks
};

/// Summarises this rank's targets. NaN if n < 2, and effective ranks without variance. Collective over the
/// Gram's grid.
HeadSummary summarise_heads(const RegressionData& data);

}  // namespace headspan
