// Rotary position embedding: rotates coordinates i and i + d/2 of a head by position * frequency_i, with
// Llama 3's scaling of the frequencies if the model has it. Positions are counted from 0 in every sequence.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/core/model_config.h"

namespace headspan {

/// Cosines and sines of the angles of every token: [tokens, 1, d/2].
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

/// Returns the frequencies in radians per position, [d/2], computed in `dtype` (float32 or float64).
at::Tensor rope_frequencies(const ModelConfig& config, at::ScalarType dtype);

/// Returns the table for sequences of `lengths` end to end; sequence s begins at position starts[s]. The
/// table is in the dtype in which a forward pass in `dtype` uses it.
RopeTable make_rope_table(const ModelConfig& config, const std::vector<std::int64_t>& starts,
                          const std::vector<std::int64_t>& lengths, at::ScalarType dtype);

/// Rotates x: [tokens, heads, d], contiguous. Returns a new tensor like x, rounded as transformers rounds.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace headspan
