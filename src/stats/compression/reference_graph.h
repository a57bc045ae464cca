// The paper's choice of target and reference heads from pairwise R² (Algorithm 1), as its text and as its
// code have it. Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// How a graph is turned into targets and references.
struct GraphRule {
  bool code = false;       ///< as the paper's code: highest layer first, references by falling use
  double targets = 0.5;    ///< share of the heads that are to be predicted
  std::int64_t least = 5;  ///< references that a target must have outside the targets
  std::int64_t most = 5;   ///< references of a target that are kept
};

/// References of each target, empty for the others. r2: [heads, heads], row-major: target, source; NaN where
/// there is none; layer: [heads]. An edge goes from a source of the same or an earlier layer to a target when
/// R² >= tau. A head joins the targets while each of them has `least` edges from heads that are none; which
/// comes first: text, the lower layer, then the lower head; code, the higher layer, then the head with the
/// fewest edges into the targets, then the lower head. tau in [0, 1] by bisection until the targets are as
/// many as asked, give or take one, the interval is below 1e-4, or 30 steps are done; what was tried last
/// holds. References are cut to `most`: text keeps the largest R²; code those with the fewest edges in all;
/// ties to the lower head.
std::vector<std::vector<std::int64_t>> select_by_graph(const std::vector<double>& r2,
                                                       const std::vector<std::int64_t>& layer,
                                                       const GraphRule& rule);

}  // namespace headspan
