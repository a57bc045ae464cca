// What an evaluation reads before the weights: the model's config, the plan or the codec, texts and requests.
// Not what is done with them (app/evaluate/evaluate.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/evaluate/answer_requests.h"
#include "app/evaluate/score_texts.h"
#include "app/run/model_input.h"
#include "io/archive/kv_codec.h"
#include "io/outputs/compression_plan.h"

namespace headspan {

/// A codec that the keys and values of prompts go through, and the step that the job asks for.
struct CodecInput {
  KvCodec codec;
  int step = 0;
};

struct EvaluateInput {
  ModelInput input;
  std::optional<CompressionPlan> plan;
  std::optional<CodecInput> codec;
  std::vector<Text> texts;
  std::vector<ScoredRequest> scored;
  std::vector<GenerationRequest> generated;
  std::string weights_digest, identity;  ///< on rank 0

  std::string source;  ///< path of the plan or the codec; empty without one
  std::optional<std::string>
      source_weights;  ///< digest of those it was calibrated on; empty if it does not say
};

/// Reads and checks everything that the job names except the values of the weights. Throws InputError. Local.
EvaluateInput read_evaluate_input(const Job& job);

/// Sets weights_digest, and identity: a digest that is equal for runs that would give the same answers with
/// the same, unchanged weight files. Copies of these files give another digest. Local.
void set_digests(const Job& job, EvaluateInput& input);

}  // namespace headspan
