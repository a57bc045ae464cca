// What the query heads of a unit's model attend to (model/forward/head_scores.h), on two small texts of its
// own: random tokens that come twice, and the beginnings of the sample's sequences.
#pragma once

#include "app/run/process_layout.h"
#include "app/run/sample.h"
#include "model/forward/head_scores.h"
#include "model/forward/transformer.h"

namespace headspan {

/// The same on all ranks.
struct AttentionScores {
  std::int64_t layers = 0;
  std::int64_t heads = 0;  ///< query heads of a layer
  HeadScores scores;       ///< [layers * heads]
  HeadScores uniform;      ///< [1] of a head that reads all tokens before a query with equal weights
};

/// Throws InputError if the model's context or vocabulary is too small for a repeated text. Local.
void check_attention_scores(const ModelConfig& config);

/// Runs the texts. Sequences are cut after 512 tokens, and those of a sample are taken in order until they
/// have 2048; a single token is skipped. A repeated text is the token that begins a text, if the config names
/// one, and twice the same 50 tokens, drawn from the vocabulary without replacement; there are 16, of this
/// seed. Collective over the group.
AttentionScores measure_attention(const Transformer& model, const Sample& sample, std::int64_t seed,
                                  std::int64_t batch_tokens, const ProcessLayout& processes);

}  // namespace headspan
