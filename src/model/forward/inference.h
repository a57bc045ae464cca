// Runs a model with KV caches: how likely tokens are, how far the distribution with a compressed cache is
// from that with a full one, which token comes next. Sequences of different lengths run side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cache/kv_cache.h"
#include "model/forward/transformer.h"

namespace headspan {

/// Scores of the tokens of one sequence from some position on, each given all tokens before it. Logarithms
/// are natural.
struct Scores {
  std::vector<double> log_probability;
  std::vector<std::uint8_t> greedy;  ///< 1: no other token was more likely
  std::vector<double> reference;     ///< log probability with the reference cache; empty without one
  std::vector<double> divergence;    ///< KL(reference || cache); empty without one
};

/// Hidden states of all tokens of some sequences, in the chunks in which they were run. They are the
/// reference with which score() compares another run.
using HiddenStates = std::vector<at::Tensor>;

/// Runs sequences with a fresh cache for that many sequences. Collective over the model's tensor-parallel
/// communicator, with equal arguments on every rank.
HiddenStates hidden_states(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                           KvCache& cache);

/// Scores the tokens of every sequence s from index from[s] >= 1 on, with a fresh cache for that many
/// sequences. `reference`: hidden states of the same sequences, or empty. Collective, as hidden_states is.
std::vector<Scores> score(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                          const std::vector<std::int64_t>& from, KvCache& cache,
                          const HiddenStates& reference);

/// Does the same, but runs the tokens of every sequence before from[s] as a prompt first, and then those from
/// there on as its continuation (KvCache::end_prompts), without a reference.
std::vector<Scores> score_continuations(const Transformer& model,
                                        const std::vector<std::vector<std::int64_t>>& sequences,
                                        const std::vector<std::int64_t>& from, KvCache& cache);

constexpr std::int64_t kNotFinite = -2;  ///< in place of a token: the forward pass has overflowed

/// Appends tokens, possibly none, to each sequence of the cache. Returns the most likely next token, or
/// kNotFinite, for sequences that got tokens and -1 for the others. Collective, as hidden_states is.
std::vector<std::int64_t> next_tokens(const Transformer& model,
                                      const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache);

/// Does the same, but samples from the model's distribution: takes the first token at which the cumulative
/// probability, in the order of the vocabulary, exceeds the sequence's uniform number in [0, 1).
std::vector<std::int64_t> sample_tokens(const Transformer& model,
                                        const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache,
                                        const std::vector<double>& uniforms);

}  // namespace headspan
