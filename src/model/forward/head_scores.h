// What the query heads of a model attend to, as five scores: means of attention weights over the queries of
// two kinds of text. In a repeated text random tokens come twice (Olsson et al. 2022, arXiv 2209.11895); a
// sample is text as it comes. Sums over one rank's sequences and heads; no texts and no files.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/range.h"
#include "dist/comm/mpi.h"
#include "model/core/model_config.h"

namespace headspan {

/// Means for each query head: [layers * heads], the same on all ranks.
struct HeadScores {
  // Over the queries of the second of two equal halves of a repeated text: the weight of
  std::vector<double> induction;        ///< the token after the query's first occurrence
  std::vector<double> duplicate_token;  ///< the query's first occurrence
  // Over all queries of a sample except the first of a sequence:
  std::vector<double> previous_token;  ///< the weight of the token before
  std::vector<double> first_token;     ///< the weight of the sequence's first token
  std::vector<double> entropy;         ///< of all weights, in nats
};

/// Queries and keys of a layer as attention takes them, on any device: q: [tokens, heads of this rank, d],
/// k: [tokens, KV heads of this rank, d]; the tokens of sequences of `lengths` end to end.
struct LayerQueries {
  std::int64_t layer;
  Range heads;  ///< which of all query heads
  at::Tensor q, k;
  const std::vector<std::int64_t>* lengths;
};

class HeadScoreSums {
 public:
  explicit HeadScoreSums(const ModelConfig& config);

  /// Adds repeated texts, whose last `period` tokens, at least 2, are also those before these. Local.
  void add_repeated(const LayerQueries& layer, std::int64_t period);

  /// Adds sequences of a sample. Local.
  void add_sample(const LayerQueries& layer);

  /// Returns the means; NaN where no query was added. Collective over comm, whose ranks have added different
  /// heads or sequences.
  HeadScores finish(const Comm& comm);

 private:
  enum Column { induction, duplicate_token, repeated_queries, previous_token, first_token, entropy, queries };
  static constexpr std::size_t kColumns = 7;

  void add(std::int64_t head, Column column, const at::Tensor& sums);
  std::vector<double> mean(Column column, Column count) const;

  ModelConfig config_;
  std::vector<double> sums_;  // [layers * heads, kColumns]
};

}  // namespace headspan
