// The sums over coordinates that make the R² of a pair, for all pairs of which a rank stores the tile: the
// heavy part of pairwise.h, done by each rank alone on what it stores. Not the factors of the sources, not
// the scores, and nothing that ranks say to each other. With the factor of source s, X = G_ts U:
//
//   explained_j = ||X[j,:]||^2,   errors = diag(M_tt - 2 X (M_ts U)^T + X S X^T)
#pragma once

#include <functional>
#include <map>

#include "stats/regression/regression_data.h"

namespace headspan {

/// What a source head's diagonal tiles say. With them the fit of any target is products alone.
struct PairSource {
  std::int64_t rank = 0;
  double pivot = 0;
  std::vector<double> whitener;  ///< U = D P L^-T, [d, d], columns beyond the rank 0
  std::vector<double> moment;    ///< S = U^T M_ss U, [d, d]; empty without a held-out part
};

/// By head: those of the process row and of the process column of a rank.
using PairSources = std::map<std::int64_t, PairSource>;

/// Takes the sums of one pair: explained [d]; errors [d], null without a held-out part. From several threads
/// at once.
using TakePair = std::function<void(std::int64_t target, std::int64_t source, const double* explained,
                                    const double* errors)>;

/// Calls `take` once for either direction of each tile below the diagonal that this rank stores. Local.
using PairSums =
    std::function<void(const RegressionData& data, const PairSources& sources, const TakePair& take)>;

/// A PairSums by BLAS, on all threads of the rank.
void host_pair_sums(const RegressionData& data, const PairSources& sources, const TakePair& take);

/// op(a) b for b: [d, d]: [m, d]; a: [m, d], or [d, m] where transposed, with leading dimension lda.
std::vector<double> times_square(const double* a, std::int64_t lda, bool transposed, std::int64_t m,
                                 std::int64_t d, const std::vector<double>& b);

}  // namespace headspan
