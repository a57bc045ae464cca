// Rotary position embedding: rotates coordinates i and i + r/2 of a head, i < r/2, by position * frequency_i,
// with the scaling of the frequencies that the model has. r is the head size, or a share of it: then the
// other coordinates stay as they are. Positions are counted from 0 in every sequence.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/core/model_config.h"

namespace headspan {

/// Cosines and sines of the angles of every token: [tokens, 1, r/2].
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

/// Returns the frequencies in radians per position, [rotated / 2], computed in `dtype` (float32 or float64),
/// for a sequence of `length` tokens. rotated: how many coordinates are rotated.
at::Tensor rope_frequencies(const RopeRule& rule, std::int64_t rotated, std::int64_t length,
                            at::ScalarType dtype);

/// Returns the frequencies in float32 as numbers, of a rule whose frequencies do not depend on the length.
std::vector<float> rotary_frequencies(const RopeRule& rule, std::int64_t rotated);

/// Which tokens a table is for: sequences of `lengths` end to end; sequence s begins at position starts[s].
struct RopePositions {
  const std::vector<std::int64_t>& starts;
  const std::vector<std::int64_t>& lengths;
};

/// Returns the table of a rule, in the dtype in which a forward pass in `dtype` uses it.
RopeTable make_rope_table(const RopeRule& rule, std::int64_t rotated, const RopePositions& positions,
                          at::ScalarType dtype);

/// Rotates any dtype, with the operations of transformers in their order, which LibTorch can differentiate.
at::Tensor rotate_plain(const at::Tensor& x, const RopeTable& table);

/// Rotates x: [tokens, heads, d], contiguous. Returns a new tensor like x, rounded as transformers rounds.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace headspan
