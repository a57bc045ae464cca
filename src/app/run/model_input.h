// The model of a unit: what its checkpoint says before the weights are read, and the weights.
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
/// Throws InputError for everything that is wrong with it but the values of the weights. Local.
ModelInput open_model(const Job::Model& rule, const std::string& path, bool random, bool logits);

/// Reads or draws the weights: with `logits` all of them, else those that make every layer's Q, K and V.
/// `name` is for the log. Throws AgreedError. Collective over the team's group.
Transformer load_model(const Job::Model& rule, const ModelInput& input, bool logits,
                       const ProcessLayout& team, const Log& log, const std::string& name);

}  // namespace headspan
