// Which heads of a layer can be dropped at least cost: backward elimination in attention's metric
// (stats/compression/attention_metric.h), and how many heads each layer and stream keeps. Not which
// references a dropped head is predicted from in the end (stats/compression/metric_selection.h). Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

struct Elimination {
  std::vector<double> loss;           ///< [n] of the n heads that are kept: n = 1 .. heads; infinite for 0
  std::vector<std::int64_t> dropped;  ///< the heads, first dropped first: all but one
};

/// From all heads on, drops the one without which the loss sum tr(M_t E_t) over the dropped heads t is least,
/// E_t the covariance of what all kept heads leave of t; ties to the lower head. covariance: [D, D],
/// column-major with the lower triangle valid; metric: [heads, d, d]. A millionth of a millionth of each
/// variance is added, so that dependent heads have an inverse. One inverse, and one update of it for each
/// drop: O(D^3).
Elimination eliminate_heads(std::vector<double> covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d);

/// How many heads each block keeps so that all keep `budget` together and the sum of losses is least, by
/// dynamic programming; losses[block][n], n = 0 .. heads of the block. Ties: fewer in the earlier block. The
/// budget is at least one for each block and at most all heads.
std::vector<std::int64_t> allocate_heads(const std::vector<std::vector<double>>& losses, std::int64_t budget);

}  // namespace headspan
