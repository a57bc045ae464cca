// Sizes from which the costs of a study follow: what it captures, in which batches and panels, and how its
// Grams are distributed over a grid. Most are double because they are multiplied.
#pragma once

#include "app/job/job.h"
#include "app/run/sample.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"

namespace headspan {

constexpr double kRemoteTilesBytes = 64.0 * (1 << 20);  // stats/regression/selection.cpp

/// How a group of ranks is laid out.
struct GroupShape {
  std::int64_t ranks = 1;
  std::int64_t tensor_parallel = 1;
  GridShape grid;

  std::int64_t data_parallel() const { return ranks / tensor_parallel; }
};

/// Tokens that enter the statistics.
struct TokenCounts {
  std::int64_t fit = 0;
  std::int64_t heldout = 0;
  std::int64_t longest = 0;  ///< length of the longest sequence

  std::int64_t total() const { return fit + heldout; }
};

inline double real(std::int64_t n) { return static_cast<double>(n); }

/// Returns the bytes of one number.
double bytes_of(Dtype dtype);

/// Counts the tokens of a sample, without the first `skip_first` of each sequence.
TokenCounts count_tokens(const Sample& sample, std::int64_t skip_first);

/// What a Gram is of: a stream alone; the same, if it is a part of the Gram of two models; two streams, of
/// which the first predicts the second; or a stream of the unit's model and of the reference.
enum class GramOf { stream, part, pair, models };

/// Heads and columns of a Gram, all layers together.
struct StreamSize {
  double heads, columns;
  double sources, targets;  ///< all heads, or those of the first and of the second stream
  GramOf of = GramOf::stream;

  bool is_summed() const { return of != GramOf::part; }
  bool is_pair() const { return of == GramOf::pair || of == GramOf::models; }
  double head_size() const { return columns / heads; }
};
/// Returns the sizes of the streams, then of the pairs, then of the streams with those of the reference, if
/// there is one.
std::vector<StreamSize> stream_sizes(const Job::Predict& predict, const ModelConfig& config,
                                     const ModelConfig* reference = nullptr);

/// Returns the number of heads of the stream of predict.streams that has most.
std::int64_t most_heads(const Job::Predict& predict, const ModelConfig& config);

/// Returns the bytes of the weights that a study keeps on each of `tensor_parallel` ranks.
double study_weight_bytes(const Job& job, const ModelConfig& config, Dtype dtype,
                          std::int64_t tensor_parallel);

/// The same of the reference, whose stored weights are read.
double reference_weight_bytes(const ModelConfig& reference, Dtype dtype, std::int64_t tensor_parallel);

/// Returns how many numbers the sums over what attention does have: a matrix [d, d] for each query head; 0 if
/// they are not saved.
double attention_size(const Job::Predict& predict, const Job::Output& output, const ModelConfig& config);

/// Returns 2 if some tokens are held out, else 1.
double parts_of(const TokenCounts& tokens);

/// Returns the tokens of all ranks that are multiplied at once (stats/gram/collector.h).
std::int64_t tokens_of_panel(const std::vector<StreamSize>& streams, Precision precision, Dtype dtype,
                             bool heldout, const GroupShape& group);

/// Returns the tokens of one batch of a data-parallel row (app/run/batch_tokens.h, app/capture/rounds.h).
double batch_of(const Job::Run& run, const TokenCounts& tokens, const GroupShape& group);

/// Returns the bytes of the tiles that the joint regressions of one rank's targets fetch from other ranks.
/// `pool`: predict.pool.
double remote_tile_bytes(std::int64_t pool, const StreamSize& stream, double ranks);

/// Returns the columns of a block of the stream's Gram, which is block-cyclic.
std::int64_t block_of(const StreamSize& stream, const GridShape& grid);

/// Returns the largest number of elements that a rank owns in tiles on and below the diagonal, over an even
/// share of half the matrix; 1 on one rank.
double fullest_of_gram(const StreamSize& stream, const GridShape& grid);

}  // namespace headspan
