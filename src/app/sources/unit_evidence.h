// What the statistics of a unit start from: the Grams of its streams, and what else its source provides.
// Every source (app/sources/gram_source.h) gives the same, so that the statistics do not depend on which it
// was.
#pragma once

#include "app/run/sample.h"
#include "app/sources/attention_scores.h"
#include "app/sources/overlap.h"
#include "app/sources/stream_origin.h"
#include "device/resident_grams.h"
#include "io/outputs/gram_file.h"
#include "stats/gram/collector.h"

namespace headspan {

/// One stream of a unit, or two of which the first predicts the second, or a stream of the unit and of the
/// reference, which predict each other. Its Grams are in host memory or on
/// GPUs; neither before they are captured or read, and after they are analysed.
struct StreamEvidence {
  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  std::optional<StreamGrams> grams{};
  std::optional<ResidentGrams> resident{};
};

struct UnitEvidence {
  std::vector<StreamEvidence> streams;  ///< then the pairs of streams, then those with the reference
  Sample sample;                        ///< without sequences if the source is Grams
  std::string model_type;
  std::string config_sha256;
  std::string weights_digest;           ///< empty: no weights were read
  std::string reference_config_sha256;  ///< empty: there is no reference
  std::string reference_weights_digest;
  std::string input_digest;                ///< of the activations or Gram files; empty for a model
  std::optional<OverlapTable> overlap;     ///< of a model's weights, if the job asks for it
  std::optional<AttentionScores> scores;   ///< of a model's heads, if the job asks for them
  std::optional<GramAttention> attention;  ///< saved with the Grams, if the job asks for it
};

}  // namespace headspan
