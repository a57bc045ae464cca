// The model of a unit: what is known of its checkpoint before the weights are read, and then the weights.
#pragma once

#include <optional>
#include <string>

#include "app/job/job.h"
#include "app/run/process_layout.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint.h"
#include "model/forward/transformer.h"

namespace headspan {

struct ModelInput {
  ModelConfig config;
  std::string config_path;
  std::string config_sha256;
  std::optional<Checkpoint> checkpoint;  ///< of pretrained weights
  Dtype dtype = Dtype::float32;          ///< of the forward
};

/// Reads config.json of the checkpoint at `path`, and the headers of its weights unless they are `random`.
/// `logits`: whether the output layer is needed. Throws InputError for everything that is wrong with the
/// checkpoint except the values of the weights. Local.
ModelInput open_model(const Job::Model& rule, const std::string& path, bool random, bool logits);

/// Reads or draws the weights: all of them with `logits`, else those that every layer's Q, K and V need.
/// `name` is for the log. Throws AgreedError. Collective over the group.
Transformer load_model(const Job::Model& rule, const ModelInput& input, bool logits,
                       const ProcessLayout& processes, const Log& log, const std::string& name);

}  // namespace headspan
