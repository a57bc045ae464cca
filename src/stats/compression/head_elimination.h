// Which heads of a layer can be dropped at least cost, by backward elimination in attention's metric
// (stats/compression/attention_metric.h), and how many heads each layer and stream keeps. Not the references
// that a dropped head is predicted from in the end (stats/compression/metric_selection.h). Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

struct Elimination {
  std::vector<double> loss;           ///< [heads + 1] if n heads are kept; infinite for n = 0
  std::vector<std::int64_t> dropped;  ///< all heads but the last, in the order in which they are dropped
};

/// Drops heads one by one, always the one after which the loss, sum tr(M_t E_t) over the dropped heads t, is
/// least; ties go to the lower head. E_t is the residual covariance of t given all kept heads. covariance:
/// [D, D], column-major with the lower triangle valid; metric: [heads, d, d]. Adds 1e-12 of each variance, so
/// that dependent heads have an inverse; if rounding leaves them without one (a Gram that was summed in FP32
/// may have eigenvalues below 0), begins again with 100 times as much. Inverts once and updates the inverse
/// for each drop: O(D^3). Throws Error if 1e-2 of each variance is not enough.
Elimination eliminate_heads(const std::vector<double>& covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d);

/// Returns how many heads each block (layer and stream) keeps, so that all blocks together keep `budget`
/// heads and the sum of losses is least, by dynamic programming; ties: fewer in the earlier block.
/// losses[block][n]: loss if the block keeps n heads. The budget is at least one head per block and at most
/// all heads.
std::vector<std::int64_t> allocate_heads(const std::vector<std::vector<double>>& losses, std::int64_t budget);

}  // namespace headspan
