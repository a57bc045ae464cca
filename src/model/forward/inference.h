// Running a model with KV caches and telling what it says in plain numbers: how likely tokens are, how far a
// compressed cache takes the distribution from the full one, which token comes next. Sequences of unequal
// length go side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cache/kv_cache.h"
#include "model/forward/transformer.h"

namespace headspan {

/// Of the tokens of one sequence from some position on, each given all before it; natural logarithms.
struct Scores {
  std::vector<double> log_probability;
  std::vector<std::uint8_t> greedy;  ///< 1: no other token was more likely
  std::vector<double> reference;     ///< log probability with the reference cache; empty without one
  std::vector<double> divergence;    ///< KL(reference || cache); empty without one
};

/// What logits are made of, of every token of some sequences, as they were run: to compare other runs with.
using HiddenStates = std::vector<at::Tensor>;

/// Runs sequences with a fresh cache of as many. Collective over the model's tensor-parallel communicator,
/// with equal arguments.
HiddenStates hidden_states(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                           KvCache& cache);

/// Scores tokens from[s] .. of every sequence, from[s] >= 1, with a fresh cache of as many; `reference` is of
/// the same sequences, or empty. Collective likewise.
std::vector<Scores> score(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                          const std::vector<std::int64_t>& from, KvCache& cache,
                          const HiddenStates& reference);

constexpr std::int64_t kNotFinite = -2;  ///< in place of a token: the forward has overflowed

/// Appends tokens to each sequence of the cache, none to some; returns the most likely next token of those
/// that got some, or kNotFinite, and -1 for the others. Collective likewise.
std::vector<std::int64_t> next_tokens(const Transformer& model,
                                      const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache);

/// As next_tokens, but draws the next token from the model's own distribution: the first one up to which the
/// probabilities, in the order of the vocabulary, sum to more than the sequence's chance, in [0, 1).
std::vector<std::int64_t> sample_tokens(const Transformer& model,
                                        const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache,
                                        const std::vector<double>& uniforms);

}  // namespace headspan
