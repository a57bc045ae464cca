// Greedy forward selection from the moments of a pool of candidate heads, by Schur complements: after each
// choice the candidates' own and cross moments are those of their residuals. Not the ranking that makes the
// pool, nor the scores of what is chosen (selection.h). Local.
#pragma once

#include <functional>
#include <optional>

#include "dist/matrix/large_array.h"
#include "stats/regression/head_moments.h"

namespace headspan {

/// One target and its pool.
struct ForwardProblem {
  std::vector<std::int64_t> heads;  ///< the candidates by falling pairwise R², then the target
  const TileView* tiles = nullptr;  ///< of `tiles_among(heads)`, of the fit part
};

/// The positions of the chosen candidates, best first, at most `most`. variance: [heads d] with 0 for
/// constant coordinates. Each step takes the candidate with the largest joint in-sample R²; a tie goes to the
/// earlier candidate. Stops where k heads have k d >= n - 1 coordinates: beyond that no R² is answered.
/// `workspace` may be kept from call to call.
std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d,
                                            const ForwardProblem& problem, const double* variance,
                                            std::int64_t most, LargeArray<double>& workspace);

/// forward_selection for several targets: by problem the chosen, as positions in `heads`, or nothing where it
/// is left to the host. Local.
using ForwardChoices = std::function<std::vector<std::optional<std::vector<std::int64_t>>>(
    const RegressionData& data, const std::vector<ForwardProblem>& problems, std::int64_t most)>;

/// The chosen by problem: by `elsewhere` where there is one, what that leaves by BLAS and LAPACK, problems
/// spread over the threads of the rank. Local.
std::vector<std::vector<std::int64_t>> choose_forward(const RegressionData& data,
                                                      const std::vector<ForwardProblem>& problems,
                                                      std::int64_t most, const ForwardChoices& elsewhere);

}  // namespace headspan
