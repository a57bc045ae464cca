// What a study asks of the Grams of one stream: all pairs, the selections, the heads on their own, what the
// other heads of a layer or all earlier heads explain together. Not files, not models.
#pragma once

#include <string>

#include "app/sources/stream_origin.h"
#include "base/profile.h"
#include "device/device_pairs.h"
#include "stats/layers/head_angles.h"
#include "stats/layers/head_summary.h"
#include "stats/layers/layer_ceiling.h"
#include "stats/regression/selection.h"

namespace headspan {

/// What the job asks for.
struct AnalysisRequest {
  std::int64_t references = 5;
  std::int64_t pool = 16;
  bool pairwise = true;
  bool forward = true;
  bool layer_ceiling = true;
  bool causal_ceiling = false;
  /// Where the heavy work is done, which `fits_device` has said yes to; none: on the CPU.
  std::optional<at::Device> device{};
};

/// Tables of one stream; each rank holds the rows of its slab of targets.
struct StreamResult {
  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  PairTable pairs;
  std::optional<SelectionTable> pairwise;
  std::optional<SelectionTable> forward;
  HeadSummary heads;
  HeadAngles angles;  ///< canonical correlations of the heads of a layer; NaN where n is too small for a pair
  std::optional<LayerCeiling> layer_ceiling;
  std::optional<std::vector<double>> causal_ceiling;  ///< [heads] on all ranks
};

/// Whether the devices of all ranks hold what analyse puts there besides Grams that lie there. Collective
/// over the grid of the Grams.
bool fits_device(const RegressionData& data, const AnalysisRequest& request, at::Device device);

/// The Gram of the fit part is lost where the causal ceiling is asked for. `resident`: where the Grams of the
/// data lie on the request's device, which they leave; not with a causal ceiling. Phases of `profile`: pairs,
/// heads, selection, ceiling. Throws AgreedError on all ranks where a device fails. Collective over the grid
/// of the Grams.
StreamResult analyse(RegressionData data, const StreamOrigin& origin, const AnalysisRequest& request,
                     Profile& profile, std::optional<ResidentGrams> resident = std::nullopt);

}  // namespace headspan
