// Initialises the weights of one rank at random, as transformers does: normal(0, initializer_range) for
// linear layers and the embedding (with zeros in the row of the padding token), ones for gains, zeros for
// biases, and what xIELU begins with.
#pragma once

#include "model/weights/weights.h"

namespace headspan {

/// Initialises all slices. Every element is a function of the seed, the name of its tensor and its index in
/// the whole tensor, so that the model does not depend on how it is sliced. Local.
void initialize_weights(const ModelConfig& config, std::uint64_t seed, Weights& weights);

/// Initialises one slice.
void initialize_slice(const ModelConfig& config, std::uint64_t seed, WeightSlice& slice);

}  // namespace headspan
