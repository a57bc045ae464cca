// Greedy forward selection for one target from the moments of a pool of candidate heads, by Schur
// complements: after each choice the candidates' own and cross moments are those of their residuals. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "stats/regression.h"

namespace headspan {

/// The positions of the chosen candidates, best first, at most `most`. moments: [(pool + 1) d, (pool + 1) d],
/// lower triangle of tiles, the candidates in the order of falling pairwise R² and the target last; variance:
/// [(pool + 1) d] with 0 for constant coordinates. Each step takes the candidate with the largest joint
/// in-sample R²; a tie goes to the earlier candidate. Stops where k heads have k d >= n - 1 coordinates:
/// beyond that no R² is answered.
std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d, std::int64_t pool,
                                            const double* moments, const double* variance, std::int64_t most);

}  // namespace headspan
