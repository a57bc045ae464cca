// The paper's choice of target and reference heads from pairwise R² (Algorithm 1), in two versions: that of
// its text and that of its code. Not the choice in attention's metric
// (stats/compression/causal_elimination.h). Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// How a graph is turned into targets and references.
struct GraphRule {
  bool code = false;                ///< the version of the paper's code, else that of its text
  double targets = 0.5;             ///< fraction of the heads that are to be predicted
  std::int64_t min_references = 5;  ///< the fewest that a target must have outside the targets
  std::int64_t max_references = 5;  ///< the most that are kept of a target
};

/// Returns the references of each target, nothing for other heads. r2: [heads, heads], row-major: target,
/// source; NaN where there is none; layer: [heads].
///
/// An edge leads from a source of the same or an earlier layer to a target if R² >= tau. A head joins the
/// targets if each of them then still has `min_references` edges from heads that are no targets. Order of
/// joining: in the text, by the lower layer, then the lower head; in the code, by the higher layer, then the
/// fewest edges into the targets, then the lower head. tau is found in [0, 1] by bisection, until the number
/// of targets is right to within one, the interval is below 1e-4, or 30 steps are done; the last step counts.
/// Of a target's references `max_references` are kept: in the text those of largest R², in the code those
/// with the fewest outgoing edges; ties go to the lower head.
std::vector<std::vector<std::int64_t>> select_by_graph(const std::vector<double>& r2,
                                                       const std::vector<std::int64_t>& layer,
                                                       const GraphRule& rule);

}  // namespace headspan
