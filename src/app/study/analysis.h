// The statistics of one stream of a study, from its Grams: all pairs, the selections, each head alone, and
// what the other heads of a layer, or all earlier heads, explain together. And those of two streams, of which
// the heads of the first predict the heads of the second. Neither files nor models.
#pragma once

#include <string>

#include "app/sources/stream_origin.h"
#include "base/profile.h"
#include "device/device_pairs.h"
#include "stats/layers/head_angles.h"
#include "stats/layers/head_summary.h"
#include "stats/layers/layer_ceiling.h"
#include "stats/layers/layer_fit.h"
#include "stats/regression/selection.h"
#include "stats/regression/similarity.h"

namespace headspan {

struct AnalysisRequest {
  std::int64_t references = 5;
  std::int64_t pool = 16;
  bool pairwise = true;
  bool forward = true;
  bool layer_ceiling = true;
  bool causal_ceiling = false;
  std::vector<SimilarityMeasure> similarity{};  ///< not with resident Grams
  /// The GPU for the heavy work, for which fits_device has returned true; none: the CPU.
  std::optional<at::Device> device{};
};

/// What sources say of targets, of one stream or of two; each rank holds the rows of its share of the
/// targets.
struct PairResult {
  struct Selected {
    SelectionRule rule;
    SourceScope scope;
    SelectionTable table;
  };

  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  PairTable pairs;
  std::optional<SimilarityTable> similarity;
  std::vector<Selected>
      selections;  ///< of two streams of a model in both scopes, of two models all, else causal
  std::optional<LayerFit> layers{};  ///< of two models
};

/// All tables of one stream.
struct StreamResult : PairResult {
  HeadSummary heads;
  HeadAngles angles;  ///< canonical correlations of the heads of a layer; NaN if n is too small
  std::optional<LayerCeiling> layer_ceiling;
  std::optional<std::vector<double>> causal_ceiling;  ///< [heads] on all ranks
};

/// Returns whether the GPUs of all ranks have room for what analyse puts there besides resident Grams.
/// Collective over the grid of the Grams.
bool fits_device(const RegressionData& data, const AnalysisRequest& request, at::Device device);

/// Computes the tables. `resident`: the Grams of the data if they are on the request's device; they are freed
/// there. Not with a causal ceiling, which overwrites the Gram of the fit part. Counts the phases pairs,
/// heads, selection and ceiling of `profile`. Throws AgreedError if a device fails. Collective over the grid
/// of the Grams.
StreamResult analyse(RegressionData data, const StreamOrigin& origin, const AnalysisRequest& request,
                     Profile& profile, std::optional<ResidentGrams> resident = std::nullopt);

/// Computes the tables of two streams (HeadLayout::second), of one model or of two. Counts the phases pairs
/// and selection of `profile`. Throws AgreedError if a device fails. Collective over the grid of the Grams.
PairResult analyse_cross(const RegressionData& data, const StreamOrigin& origin,
                         const AnalysisRequest& request, Profile& profile);

}  // namespace headspan
