// What a compression is found from: of one model and some tokens the Grams of keys and values, and what
// attention does with them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "app/job/job.h"
#include "io/outputs/compression_plan.h"
#include "model/core/model_config.h"
#include "stats/compression/attention_metric.h"
#include "stats/gram/collector.h"
#include "stats/regression/regression_data.h"

namespace headspan {

struct Calibration {
  ModelConfig config;
  HeadLayout layout;  ///< of keys, and of values
  FitRules rules;
  AttentionMoments moments;
  std::map<Stream, StreamGrams> grams;                  ///< of keys, values; empty: there are only those of
  std::map<Stream, std::vector<HeadGram>> layer_grams;  ///< each layer alone

  const Comm& comm() const;  ///< of the Grams' grid
};

/// The covariance of some heads of a stream, [count d, count d] with the lower triangle valid; each rank asks
/// for its own heads, for none too. Collective over the Gram's grid.
std::vector<double> covariance_of(const HeadGram& gram, const std::vector<std::int64_t>& heads,
                                  std::int64_t d);

/// The metric of every head of keys and values: [heads, d, d] by stream, on every rank. Collective.
std::map<Stream, std::vector<double>> head_metrics(const Calibration& calibration);

/// By stream, on rank 0: [layers].
using PlannedStreams = std::map<Stream, std::vector<PlannedBlock>>;

/// What storing one layer of a stream as `block` says does to the model: the mean divergence from the full
/// cache, in nats a token. The same on every rank. Collective.
using MeasuredKl = std::function<double(Stream stream, std::int64_t layer, const PlannedBlock& block)>;

}  // namespace headspan
