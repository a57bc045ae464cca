// Greedy forward selection from the moments of a pool of candidate heads, by Schur complements: after each
// choice the moments of candidates and target become those of their residuals. Not the ranking that makes the
// pool, nor the scores of the chosen heads (selection.h). Local.
#pragma once

#include <functional>
#include <optional>

#include "dist/matrix/large_array.h"
#include "stats/regression/head_moments.h"

namespace headspan {

/// One target and its pool.
struct ForwardProblem {
  std::vector<std::int64_t> heads;  ///< the candidates by falling pairwise R², then the target
  const TileView* tiles = nullptr;  ///< of the fit part, for `tiles_among(heads)`
  std::int64_t source_size = 0;     ///< coordinates of a candidate; the columns beyond are 0
};

/// Chooses at most `count` candidates; returns their positions in `heads`, best first. variance: [heads d], 0
/// for constant coordinates. Each step adds the candidate that gives the largest joint in-sample R²; ties go
/// to the earlier candidate. Stops at k heads if k d >= n - 1, where no R² exists. The caller may keep
/// `workspace` from call to call.
std::vector<std::int64_t> forward_selection(const FitRules& rules, std::int64_t d,
                                            const ForwardProblem& problem, const double* variance,
                                            std::int64_t count, LargeArray<double>& workspace);

/// Does forward_selection for several targets somewhere else than on the host. Returns the choice for each
/// problem, or nothing for one that is left to the host. Local.
using ForwardChoices = std::function<std::vector<std::optional<std::vector<std::int64_t>>>(
    const RegressionData& data, const std::vector<ForwardProblem>& problems, std::int64_t count)>;

/// Runs forward_selection for each problem: by `elsewhere`, if given, and for those that it leaves here, on
/// all threads of the rank. Returns the choices by problem. Local.
std::vector<std::vector<std::int64_t>> choose_forward(const RegressionData& data,
                                                      const std::vector<ForwardProblem>& problems,
                                                      std::int64_t count, const ForwardChoices& elsewhere);

}  // namespace headspan
