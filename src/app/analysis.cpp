#include "app/analysis.h"

namespace headspan {

StreamResult analyse(const RegressionData& data, const StreamOrigin& origin, const AnalysisRequest& request) {
  StreamResult result{origin, data.layout, data.rules, all_pairs(data), {}, {}, summarise_heads(data)};
  if (request.pairwise)
    result.pairwise = select(data, result.pairs, SelectionRule::pairwise, request.references, request.pool);
  if (request.forward)
    result.forward = select(data, result.pairs, SelectionRule::forward, request.references, request.pool);
  return result;
}

}  // namespace headspan
