// The sizes that the costs of a job follow from: what it captures, in which batches and panels, how its Grams
// lie on a grid. Most are double, for they are multiplied.
#pragma once

#include "app/job/job.h"
#include "app/run/sample.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"
#include "model/weights/weights.h"

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
  std::int64_t longest = 0;  ///< of the sequences

  std::int64_t total() const { return fit + heldout; }
};

inline double real(std::int64_t n) { return static_cast<double>(n); }

/// Of one number.
double bytes_of(Dtype dtype);

/// Of those of a sample, all but the first `skip_first` of each sequence.
TokenCounts count_tokens(const Sample& sample, std::int64_t skip_first);

/// Of a captured stream, of all layers.
struct StreamSize {
  double heads, columns;
};
std::vector<StreamSize> stream_sizes(const Job& job, const ModelConfig& config);

/// Of the captured stream that has most.
std::int64_t most_heads(const Job& job, const ModelConfig& config);

/// The weights that a study reads.
Extent extent_of(const Job& job, const ModelConfig& config);

/// Numbers of one matrix for each query head, where what attention does is summed.
double attention_size(const Job& job, const ModelConfig& config);

/// 2 where some tokens are held out.
double parts_of(const TokenCounts& tokens);

/// Of all ranks, that are multiplied at once (stats/gram/collector.h).
std::int64_t tokens_of_panel(const Job& job, const ModelConfig& config, Dtype dtype, bool heldout,
                             const GroupShape& group);

/// Tokens of one batch of a data-parallel row (app/sources/run_model.cpp, app/capture/rounds.h).
double batch_of(const Job& job, const TokenCounts& tokens, const GroupShape& group);

/// Tiles of other ranks that the joint regressions of one rank's targets take.
double remote_tile_bytes(const Job& job, const ModelConfig& config, const StreamSize& stream, double ranks);

/// Columns of a block of a stream's Gram.
std::int64_t block_of(const StreamSize& stream, const ModelConfig& config, const GridShape& grid);

/// Elements of the tiles on and below the diagonal that the fullest rank owns, against an even share of half
/// of the matrix: what a product costs there. 1 on one rank, which has no tile to multiply whole.
double fullest_of_gram(const StreamSize& stream, const ModelConfig& config, const GridShape& grid);

}  // namespace headspan
