// What a compression is found from: of one model and some tokens the Grams of keys and values, and what
// attention does with them. And the planners, one for each kind of algorithm: each fills in what a layer
// stores, on rank 0.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "app/job.h"
#include "io/compression_plan.h"
#include "model/model_config.h"
#include "stats/attention_metric.h"
#include "stats/collector.h"
#include "stats/regression_data.h"

namespace headspan {

struct Calibration {
  ModelConfig config;
  HeadLayout layout;  ///< of keys, and of values
  FitRules rules;
  AttentionMoments moments;
  std::map<std::string, StreamGrams> grams;                  ///< "k", "v"; empty: there are only those of
  std::map<std::string, std::vector<HeadGram>> layer_grams;  ///< each layer alone

  const Comm& comm() const;  ///< of the Grams' grid
};

/// The covariance of some heads of a stream, [count d, count d] with the lower triangle valid; each rank asks
/// for its own heads, for none too. Collective over the Gram's grid.
std::vector<double> covariance_of(const HeadGram& gram, const std::vector<std::int64_t>& heads,
                                  std::int64_t d);

/// The metric of every head of keys and values: [heads, d, d] by stream, on every rank. Collective.
std::map<std::string, std::vector<double>> head_metrics(const Calibration& calibration);

/// By stream, on rank 0: [layers].
using PlannedStreams = std::map<std::string, std::vector<PlannedBlock>>;

/// Throws InputError where compress.bits names more latents than a layer has. Local.
void check_bits(const Job::Compress& rule, const ModelConfig& config);

/// What storing one layer of a stream as `block` says does to the model: the mean divergence from the full
/// cache, in nats a token. The same on every rank. Collective.
using BlockLoss =
    std::function<double(const std::string& stream, std::int64_t layer, const PlannedBlock& block)>;

/// Latents in few bits or as whole columns, for which Grams of each layer will do. With `measure`
/// (compress.units = measured) the losses of each layer and stream are put in the unit of what their bands by
/// the formula are measured to lose. Collective over the grid of the Grams.
PlannedStreams plan_latents(const Job::Compress& rule, const Calibration& calibration,
                            const BlockLoss& measure);

/// By stream, for each layer: what half of its latents, as they are, are measured to lose over what they are
/// expected to. Collective over the grid of the Grams.
std::map<std::string, std::vector<double>> units_of_halves(const Job::Compress& rule,
                                                           const Calibration& calibration,
                                                           const BlockLoss& measure);

/// Whole heads kept, and maps for the others.
struct HeadPlan {
  PlannedStreams streams;
  std::int64_t references = 0;  ///< of the target that has most
};

/// By headspan's elimination or the paper's graphs; uses up the Grams. With `measure` the losses of each
/// layer and stream are put in the unit of what half of its latents are measured to lose. Throws AgreedError
/// where the budget is out of reach. Collective over the grid of the Grams.
HeadPlan plan_heads(const Job::Compress& rule, Calibration& calibration, const BlockLoss& measure);

/// Every column in `bits` bits, in groups of whole heads of at least 64 columns. Local.
PlannedStreams plan_quantised(const Job::Compress& rule, const ModelConfig& config);

}  // namespace headspan
