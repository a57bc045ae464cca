// A compression plan of the right form whose numbers mean nothing: for measuring how fast a cache is where
// calibrating the model would take longer than the measurement.
#pragma once

#include <string>

#include "io/outputs/compression_plan.h"
#include "model/core/model_config.h"

namespace headspan {

/// Of both streams. algorithm: `latent`, latents in bands of 8, 5 and 3 bits, a quarter of the bytes of a
/// full cache in 16 bits; `headspan`, every other head of a layer kept, and the others each of two of those:
/// half. Throws InputError for another. Local; the same on every rank.
CompressionPlan made_up_plan(const ModelConfig& config, const std::string& algorithm);

}  // namespace headspan
