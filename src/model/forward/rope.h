// Rotary position embedding: coordinates i and i + d/2 of a head are turned by position * frequency_i, with
// Llama 3's scaling of the frequencies where the model has it. Positions count from 0 in every sequence.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/core/model_config.h"

namespace headspan {

/// Cosine and sine of the angles of every token: [tokens, 1, d/2].
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

/// The frequencies in radians per position, [d/2], computed in `dtype` (float32 or float64).
at::Tensor rope_frequencies(const ModelConfig& config, at::ScalarType dtype);

/// For tokens of sequences of `lengths` laid end to end, each of which begins at its position of `starts`, in
/// the dtype in which a forward in `dtype` keeps them.
RopeTable make_rope_table(const ModelConfig& config, const std::vector<std::int64_t>& starts,
                          const std::vector<std::int64_t>& lengths, at::ScalarType dtype);

/// x: [tokens, heads, d], contiguous. Returns a new tensor like x, rounded as transformers rounds.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace headspan
