// Fills the weights of one rank at random as transformers initialises a model: normal(0, initializer_range)
// for linear layers and the embedding (whose row of the padding token is zero), ones for gains, zeros for
// biases.
#pragma once

#include "model/weights/weights.h"

namespace headspan {

/// Every element is a function of the seed, its tensor's name and its place in the whole tensor: the same
/// model whatever the slices. Needs no communication.
void initialize_weights(const ModelConfig& config, std::uint64_t seed, Weights& weights);

/// One slice of them.
void initialize_slice(const ModelConfig& config, std::uint64_t seed, WeightSlice& slice);

}  // namespace headspan
