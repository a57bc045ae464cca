// Running a model with KV caches and telling what it says in plain numbers: how likely tokens are, how far a
// compressed cache takes the distribution from the full one, which token comes next. Sequences of unequal
// length go side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kv_cache.h"
#include "model/transformer.h"

namespace headspan {

/// Of the tokens of one sequence from some position on, each given all before it; natural logarithms.
struct Scores {
  std::vector<double> log_probability;
  std::vector<std::uint8_t> greedy;  ///< 1: no other token was more likely
  std::vector<double> reference;     ///< log probability with the reference cache; empty without one
  std::vector<double> divergence;    ///< KL(reference || cache); empty without one
};

/// Scores tokens from[s] .. of every sequence, from[s] >= 1. Both caches are fresh and hold as many
/// sequences; `reference` may be null. Collective over the model's tensor-parallel communicator, with equal
/// arguments.
std::vector<Scores> score(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                          const std::vector<std::int64_t>& from, KvCache& cache, KvCache* reference);

/// Appends tokens to each sequence of the cache, none to some; returns the most likely next token of those
/// that got some, and -1 for the others. Collective likewise.
std::vector<std::int64_t> next_tokens(const Transformer& model,
                                      const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache);

}  // namespace headspan
