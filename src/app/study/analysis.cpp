#include "app/study/analysis.h"

#include <algorithm>
#include <limits>

#include "device/device_forward.h"
#include "device/device_layers.h"
#include "device/device_room.h"
#include "stats/layers/causal_ceiling.h"

namespace headspan {
namespace {

HeadAngles canonical_correlations(const RegressionData& data) {
  const std::int64_t d = data.layout.head_size;
  HeadAngles angles = head_angles(data.fit.matrix, data.layout, data.sst, data.rules.pivot_tolerance(d));
  if (data.rules.too_few(d))
    std::fill(angles.cosines.begin(), angles.cosines.end(), std::numeric_limits<double>::quiet_NaN());
  return angles;
}

/// Copies the tiles that the selections read from the GPUs to the host.
void copy_selected(const ResidentGrams& resident, RegressionData& data, const PairTable& pairs,
                   const AnalysisRequest& request) {
  std::int64_t pool = request.pairwise ? request.references : 0;
  if (request.forward) pool = std::max(pool, request.pool);
  resident.copy_to_host(data, selection_tiles(data.layout, pairs, pool));
}

/// Fits all pairs, and compares their heads if the request names measures of similarity.
void fit_pairs(const RegressionData& data, const AnalysisRequest& request, const ResidentGrams* resident,
               PairResult& result) {
  const PairSums sums =
      request.device ? device_pair_sums(*request.device, resident) : PairSums(host_pair_sums);
  Similarity similarity(request.similarity);
  result.pairs = all_pairs(data, request.similarity.empty() ? sums : similarity.beside(sums));
  if (!request.similarity.empty()) result.similarity = similarity.finish(data, result.pairs.rank);
}

/// Selects from the fitted pairs by the rules of the request, in each scope.
void select_sources(const RegressionData& data, const AnalysisRequest& request,
                    const std::vector<SourceScope>& scopes, PairResult& result) {
  const ForwardChoices forward = request.device ? device_forward_choices(*request.device) : ForwardChoices();
  for (const SelectionRule rule : {SelectionRule::pairwise, SelectionRule::forward})
    for (const SourceScope scope : scopes)
      if (rule == SelectionRule::pairwise ? request.pairwise : request.forward)
        result.selections.push_back(
            {rule, scope,
             select(data, result.pairs, rule, request.references, request.pool, forward, scope)});
}

}  // namespace

bool fits_device(const RegressionData& data, const AnalysisRequest& request, at::Device device) {
  return have_room(data.comm(), device,
                   std::max({device_pair_bytes(data), device_layer_bytes(data.layout),
                             device_forward_bytes(data.layout, request.pool)}));
}

StreamResult analyse(RegressionData data, const StreamOrigin& origin, const AnalysisRequest& request,
                     Profile& profile, std::optional<ResidentGrams> resident) {
  HS_ASSERT(!resident || (request.device && !request.causal_ceiling && request.similarity.empty()));
  const auto timed = [&](const char* phase, const auto& work) {
    const Profile::Phase counted = profile.enter(phase);
    return work();
  };
  StreamResult result{{origin, data.layout, data.rules, {}, {}, {}, {}}, {}, {}, {}, {}};
  timed("pairs", [&] { fit_pairs(data, request, resident ? &*resident : nullptr, result); });
  if (resident) {
    timed("pairs", [&] { copy_selected(*resident, data, result.pairs, request); });
    resident.reset();
  }
  result.heads = timed("heads", [&] { return summarise_heads(data); });
  result.angles = timed("heads", [&] { return canonical_correlations(data); });
  timed("selection", [&] { select_sources(data, request, {SourceScope::causal}, result); });
  if (request.layer_ceiling)
    result.layer_ceiling = timed("ceiling", [&] {
      const LayerInverse invert = request.device ? device_layer_inverse(*request.device) : LayerInverse();
      return layer_ceiling(data, kWideLayer, invert);
    });
  if (request.causal_ceiling) result.causal_ceiling = timed("ceiling", [&] { return causal_ceiling(data); });
  return result;
}

PairResult analyse_cross(const RegressionData& data, const StreamOrigin& origin,
                         const AnalysisRequest& request, Profile& profile) {
  PairResult result{origin, data.layout, data.rules, {}, {}, {}, {}};
  const bool one_model = origin.reference == ReferenceSide::none;
  {
    const Profile::Phase phase = profile.enter("pairs");
    fit_pairs(data, request, nullptr, result);
  }
  const Profile::Phase phase = profile.enter("selection");
  std::vector<SourceScope> scopes{SourceScope::all};
  if (one_model) scopes.insert(scopes.begin(), SourceScope::causal);
  select_sources(data, request, scopes, result);
  if (!one_model) result.layers = fit_layers(data);
  return result;
}

}  // namespace headspan
