#include "app/plan/job_sizes.h"

#include <algorithm>

#include "app/job/job_rules.h"
#include "app/run/batch_tokens.h"
#include "app/run/rank_resources.h"
#include "dist/matrix/block_cyclic.h"
#include "model/weights/weight_loader.h"
#include "model/weights/weights.h"
#include "stats/gram/collector.h"

namespace headspan {

double bytes_of(Dtype dtype) {
  if (dtype == Dtype::float64) return 8;
  return dtype == Dtype::float32 ? 4 : 2;
}

TokenCounts count_tokens(const Sample& sample, std::int64_t skip_first) {
  TokenCounts counts;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s) {
    const std::int64_t length = sample.sequences[s].length;
    (sample.heldout[s] != 0 ? counts.heldout : counts.fit) += std::max<std::int64_t>(0, length - skip_first);
    counts.longest = std::max(counts.longest, length);
  }
  return counts;
}

std::vector<StreamSize> stream_sizes(const Job::Predict& predict, const ModelConfig& config,
                                     const ModelConfig* reference) {
  const double d = real(config.head_size);
  const auto heads_of = [&](Stream stream) { return real(config.heads_of(stream) * config.layers); };
  std::vector<StreamSize> sizes;
  for (const Stream stream : predict.streams) {
    const double heads = heads_of(stream);
    sizes.push_back({heads, heads * d, heads, heads, reference ? GramOf::part : GramOf::stream});
  }
  for (const StreamPair& pair : predict.cross) {
    const double sources = heads_of(pair.source), targets = heads_of(pair.target);
    sizes.push_back({sources + targets, (sources + targets) * d, sources, targets, GramOf::pair});
  }
  if (reference == nullptr) return sizes;
  const double widest = std::max(d, real(reference->head_size));
  for (const Stream stream : predict.streams) {
    const double own = heads_of(stream), other = real(reference->heads_of(stream) * reference->layers);
    sizes.push_back({own + other, (own + other) * widest, own, other, GramOf::models});
  }
  return sizes;
}

std::int64_t most_heads(const Job::Predict& predict, const ModelConfig& config) {
  double heads = 0;
  for (const StreamSize& stream : stream_sizes(predict, config))
    if (!stream.is_pair()) heads = std::max(heads, stream.heads);
  return static_cast<std::int64_t>(heads);
}

double study_weight_bytes(const Job& job, const ModelConfig& config, Dtype dtype,
                          std::int64_t tensor_parallel) {
  return weight_bytes(config, {config.layers, saves_attention(job.predict, job.output)}, tensor_parallel,
                      planned_weight_dtype(job.model, config, dtype));
}

double reference_weight_bytes(const ModelConfig& reference, Dtype dtype, std::int64_t tensor_parallel) {
  return weight_bytes(reference, {reference.layers, false}, tensor_parallel,
                      weight_dtype(dtype, reference, nullptr));
}

double attention_size(const Job::Predict& predict, const Job::Output& output, const ModelConfig& config) {
  if (!saves_attention(predict, output)) return 0;
  return real(config.layers * config.heads) * real(config.head_size * config.head_size);
}

double parts_of(const TokenCounts& tokens) { return tokens.heldout > 0 ? 2 : 1; }

std::int64_t tokens_of_panel(const std::vector<StreamSize>& streams, Precision precision, Dtype dtype,
                             bool heldout, const GroupShape& group) {
  std::vector<std::int64_t> columns;
  for (const StreamSize& stream : streams)
    if (stream.is_summed()) columns.push_back(static_cast<std::int64_t>(stream.columns));
  return dtype == Dtype::float64 ? panel_tokens<double>(group.grid, columns, precision, heldout)
                                 : panel_tokens<float>(group.grid, columns, precision, heldout);
}

double batch_of(const Job::Run& run, const TokenCounts& tokens, const GroupShape& group) {
  const std::int64_t batch =
      batch_tokens(run, tokens.total(), group.data_parallel(), run.device == ComputeDevice::cuda);
  return real(std::max(batch, std::min(tokens.longest, tokens.total())));
}

double remote_tile_bytes(std::int64_t pool, const StreamSize& stream, double ranks) {
  const double side = (real(pool) + 1) * stream.head_size();
  return stream.targets / ranks * side * side / 2 * 8 * (ranks - 1) / ranks;
}

std::int64_t block_of(const StreamSize& stream, const GridShape& grid) {
  return gram_block(grid, static_cast<std::int64_t>(stream.heads),
                    static_cast<std::int64_t>(stream.head_size()));
}

double fullest_of_gram(const StreamSize& stream, const GridShape& grid) {
  if (grid.rows * grid.columns == 1) return 1;
  const auto columns = static_cast<std::int64_t>(stream.columns);
  const std::int64_t block = block_of(stream, grid);
  const BlockCyclic rows{columns, block, static_cast<int>(grid.rows), 0},
      cols{columns, block, static_cast<int>(grid.columns), 0};
  double largest = 0;
  for (int p = 0; p < rows.parts; ++p)
    for (int q = 0; q < cols.parts; ++q) {
      double elements = 0;
      for (std::int64_t c = 0; c < cols.local_blocks(q); ++c) {
        const std::int64_t first = cols.global_block(q, c);
        elements += real(cols.block_size(first)) *
                    real(rows.local_size(p) - rows.local_before(p, std::min(columns, first * block)));
      }
      largest = std::max(largest, elements);
    }
  return largest / (stream.columns * stream.columns / 2 / real(grid.rows * grid.columns));
}

}  // namespace headspan
