// Which heads of all layers can be dropped at least cost when a dropped head may be predicted from kept heads
// of its own or an earlier layer: lazy greedy elimination. The loss of dropping a head is its own from the
// best references that are left, and what it adds to the losses of dropped heads that refer to it. Knows no
// moments: it asks for choices of references, many at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stats/compression/metric_selection.h"

namespace headspan {

/// A head of one of the streams that are eliminated together.
struct StreamHead {
  std::int64_t stream = 0;
  std::int64_t head = 0;
};

/// The best references of a target among those of its candidates that are allowed: positions, ascending by
/// their own loss.
struct ReferenceQuery {
  StreamHead target;
  std::vector<std::int64_t> allowed;
};

/// By stream and target head; empty for kept heads.
using References = std::vector<std::vector<std::vector<std::int64_t>>>;

/// candidates[stream][target]: heads of the same stream in the order of the positions that queries speak of.
/// layer[head] of any stream. Drops heads until `budget` are kept in all: the head of least cost first, ties
/// to the lower layer, then the earlier stream, then the lower head; a cost is taken anew when its head's
/// turn comes. A head that would leave a target without references stays. Empty when the budget cannot be
/// met. `answer` gets many queries at once and returns as many choices.
References eliminate_causally(
    const std::vector<std::vector<std::vector<std::int64_t>>>& candidates,
    const std::vector<std::int64_t>& layer, std::int64_t budget,
    const std::function<std::vector<MetricChoice>(const std::vector<ReferenceQuery>&)>& answer);

}  // namespace headspan
