// Which heads of all layers can be dropped at least cost, if a dropped head is predicted from kept heads of
// its own or an earlier layer: lazy greedy elimination. Dropping a head costs its own loss, from the best
// references among the kept heads, plus what this adds to the losses of dropped heads that refer to it. Knows
// no moments: it asks for choices of references, many at a time. Local.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stats/compression/metric_selection.h"

namespace headspan {

/// A head of one of the streams that share a budget.
struct StreamHead {
  std::int64_t stream = 0;
  std::int64_t head = 0;
};

/// Asks for the best references of a target among its candidates at the positions `allowed`, which ascend by
/// the loss of each candidate alone.
struct ReferenceQuery {
  StreamHead target;
  std::vector<std::int64_t> allowed;
};

/// Answers queries, in order.
using ReferenceOracle = std::function<std::vector<MetricChoice>(const std::vector<ReferenceQuery>&)>;

/// Heads by stream and target head; as the result, empty for kept heads.
using References = std::vector<std::vector<std::vector<std::int64_t>>>;

/// Drops heads until `budget` heads of all streams are kept, always the head of least cost; ties go to the
/// lower layer, then the earlier stream, then the lower head. A cost is updated when its head comes first. A
/// head whose loss would leave a target without references is kept. Returns the references of the dropped
/// heads; nothing if the budget cannot be met. candidates: by stream and target, in the order of the
/// positions in queries; layer: by head, of any stream.
References eliminate_causally(const References& candidates, const std::vector<std::int64_t>& layer,
                              std::int64_t budget, const ReferenceOracle& answer);

}  // namespace headspan
