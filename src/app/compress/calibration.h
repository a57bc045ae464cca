// What a compression is planned from: the Grams of a model's keys and values over some tokens, and the
// moments of attention over these tokens.
#pragma once

#include <functional>
#include <map>

#include "app/job/job.h"
#include "io/outputs/compression_plan.h"
#include "model/core/model_config.h"
#include "stats/compression/attention_metric.h"
#include "stats/gram/collector.h"
#include "stats/regression/regression_data.h"

namespace headspan {

struct Calibration {
  ModelConfig config;
  HeadLayout layout;  ///< of keys and of values
  FitRules rules;
  AttentionMoments moments;
  // Either the Grams of whole streams, k and v, or those of each layer alone.
  std::map<Stream, StreamGrams> grams;
  std::map<Stream, std::vector<HeadGram>> layer_grams;

  const Comm& comm() const;  ///< of the Grams' grid
};

/// Returns the covariance of some heads of a Gram, [heads.size() * d, heads.size() * d], lower triangle
/// valid. Each rank names its own heads, or none. Collective over the Gram's grid.
std::vector<double> covariance_of(const HeadGram& gram, const std::vector<std::int64_t>& heads,
                                  std::int64_t d);

/// Returns the metric of every head of keys and values, [heads, d, d] by stream, on every rank. Collective.
std::map<Stream, std::vector<double>> head_metrics(const Calibration& calibration);

/// Planned blocks by stream, on rank 0: [layers].
using PlannedStreams = std::map<Stream, std::vector<PlannedBlock>>;

/// Measures what compressing a layer of a stream as `block` does to the model: the mean KL divergence from
/// the full cache, in nats per token. The same on every rank. Collective.
using MeasuredKl = std::function<double(Stream stream, std::int64_t layer, const PlannedBlock& block)>;

}  // namespace headspan
