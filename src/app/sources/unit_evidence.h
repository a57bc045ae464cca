// What the statistics of a unit start from: the Grams of its streams, and what else was learnt on the way.
// Every source (app/sources/gram_source.h) gives the same, so that the statistics know no difference.
#pragma once

#include "app/run/sample.h"
#include "app/sources/overlap.h"
#include "app/sources/stream_origin.h"
#include "device/resident_grams.h"
#include "io/outputs/gram_file.h"
#include "stats/gram/collector.h"

namespace headspan {

/// One stream of a unit, ready for the statistics.
struct StreamEvidence {
  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  /// One of them, or nothing until they are captured or read, and once they are analysed.
  std::optional<StreamGrams> grams{};
  std::optional<ResidentGrams> resident{};  ///< on the GPUs of the team
};

/// What a source says of a unit besides its Grams.
struct UnitEvidence {
  std::vector<StreamEvidence> streams;
  Sample sample;  ///< no sequences where merged Grams tell none
  std::string model_type;
  std::string config_sha256;
  std::string weights_digest;              ///< empty: none were read
  std::string input_digest;                ///< of the activations or Gram files; empty for a model
  std::optional<OverlapTable> overlap;     ///< of a model's weights, where the job asks for it
  std::optional<GramAttention> attention;  ///< what goes with the Grams into their file, where there is any
};

}  // namespace headspan
