#include "app/analysis.h"

#include <algorithm>
#include <limits>

#include "stats/causal_ceiling.h"

namespace headspan {
namespace {

HeadAngles canonical_correlations(const RegressionData& data) {
  const std::int64_t d = data.layout.head_size;
  HeadAngles angles = head_angles(data.fit.matrix, data.layout, data.sst, data.rules.pivot_tolerance(d));
  if (data.rules.too_few(d))
    std::fill(angles.cosines.begin(), angles.cosines.end(), std::numeric_limits<double>::quiet_NaN());
  return angles;
}

}  // namespace

StreamResult analyse(RegressionData data, const StreamOrigin& origin, const AnalysisRequest& request) {
  StreamResult result{origin,
                      data.layout,
                      data.rules,
                      all_pairs(data),
                      {},
                      {},
                      summarise_heads(data),
                      canonical_correlations(data),
                      {},
                      {}};
  if (request.pairwise)
    result.pairwise = select(data, result.pairs, SelectionRule::pairwise, request.references, request.pool);
  if (request.forward)
    result.forward = select(data, result.pairs, SelectionRule::forward, request.references, request.pool);
  if (request.layer_ceiling) result.layer_ceiling = layer_ceiling(data);
  if (request.causal_ceiling) result.causal_ceiling = causal_ceiling(data);
  return result;
}

}  // namespace headspan
