// The regression of one target head on several others from their dense moments. Used by selections and
// ceilings.
#pragma once

#include "stats/regression/regression_data.h"

namespace headspan {

struct JointFit {
  Score score;
  std::int64_t rank = 0;  ///< regressors kept
  double pivot = 0;       ///< the smallest pivot kept
};

/// Regresses the last of `heads` on the first `sources` of them. gram: [ld, ld] of all heads in their order,
/// ld = heads.size() * d, column-major, lower triangle of tiles with full diagonal tiles; moment: the same of
/// the held-out part, null without one. Local.
JointFit fit_jointly(const RegressionData& data, const std::vector<std::int64_t>& heads, std::int64_t sources,
                     const double* gram, const double* moment);

/// Returns the entries of `values`: [D] that belong to `heads`, in their order.
std::vector<double> gather(const std::vector<double>& values, const std::vector<std::int64_t>& heads,
                           std::int64_t d);

}  // namespace headspan
