// The sums that the R² of a pair is computed from, for all pairs whose tile this rank stores: the heavy part
// of pairwise.h, which each rank does alone. Not the factors of the sources, the scores, or any
// communication. With the factor of source s, X = G_ts U:
//
//   explained_j = ||X[j,:]||^2,   errors = diag(M_tt - 2 X (M_ts U)^T + X S X^T)
#pragma once

#include <functional>
#include <map>

#include "stats/regression/regression_data.h"

namespace headspan {

/// What is computed from a source head's diagonal tiles. The fit of any target then takes only products.
struct PairSource {
  std::int64_t rank = 0;
  double pivot = 0;
  std::vector<double> whitener;  ///< U = D P L^-T, [d, d], 0 in columns beyond the rank
  std::vector<double> moment;    ///< S = U^T M_ss U, [d, d]; empty without a held-out part
};

/// By head: those of a rank's process row and process column.
using PairSources = std::map<std::int64_t, PairSource>;

/// Receives the sums of one pair: explained: [d]; errors: [d], null without a held-out part. Called by
/// several threads at once.
using PairSink = std::function<void(std::int64_t target, std::int64_t source, const double* explained,
                                    const double* errors)>;

/// Calls `sink` at least for each pair that the layout has and whose tile this rank stores: once for each
/// direction of a tile below the diagonal, or from the first of two streams to the second. Local.
using PairSums =
    std::function<void(const RegressionData& data, const PairSources& sources, const PairSink& sink)>;

/// A PairSums that uses BLAS on all threads of the rank.
void host_pair_sums(const RegressionData& data, const PairSources& sources, const PairSink& sink);

}  // namespace headspan
