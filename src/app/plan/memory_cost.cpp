#include "app/plan/memory_cost.h"

#include <algorithm>

#include "app/job/job_rules.h"
#include "app/run/rank_resources.h"
#include "dist/matrix/block_cyclic.h"
#include "stats/gram/product_kind.h"
#include "stats/layers/layer_ceiling.h"

namespace headspan {
namespace {

constexpr double kStagingBytes = 2 * 8.0 * (1 << 20);  // model/weights/weight_loader.cpp

/// Local rows and columns of a stream's Gram on the fullest rank.
struct LocalSize {
  double rows, columns;
};

LocalSize local_size(const StreamSize& stream, const GridShape& grid) {
  const std::int64_t columns = static_cast<std::int64_t>(stream.columns);
  const std::int64_t block = block_of(stream, grid);
  const BlockCyclic rows{columns, block, static_cast<int>(grid.rows), 0};
  const BlockCyclic cols{columns, block, static_cast<int>(grid.columns), 0};
  return {real(rows.local_size(0)), real(cols.local_size(0))};
}

/// Returns the bytes of a Gram's local array on the fullest rank. Pages (4 KiB) above the diagonal are never
/// touched and take no memory.
double triangle_bytes(const StreamSize& stream, const GridShape& grid) {
  const LocalSize local = local_size(stream, grid);
  const double triangle = 8 * fullest_of_gram(stream, grid) * stream.columns * stream.columns / 2 /
                          real(grid.rows * grid.columns);
  return std::min(8 * local.rows * local.columns, triangle + 4096 * local.columns);
}

/// Returns the bytes of the tables of all streams, of the Grams that are parts of those captured, and of the
/// workspace of the largest stream; streams are analysed one after another. layers: of the model.
double statistics_bytes(const Job::Predict& predict, const std::vector<StreamSize>& streams,
                        std::int64_t layers, const TokenCounts& tokens, const GroupShape& group) {
  const double ranks = real(group.ranks);
  double tables = 0, work = 0;
  for (const StreamSize& stream : streams) {
    const double d = stream.head_size(), h = stream.heads, width = stream.columns / real(layers);
    const double directions = stream.of == GramOf::models ? 2 : 1;
    if (!stream.is_summed()) tables += parts_of(tokens) * triangle_bytes(stream, group.grid);
    const double measures = real(static_cast<std::int64_t>(predict.similarity.size()));
    tables += directions * stream.targets * h * (3 * 8 + 1 + 8 * measures) / ranks;
    if (!stream.is_pair()) tables += h * d * 3 * 8 / ranks + h * width / d * 8;
    const double records = (h / real(group.grid.rows) + h / real(group.grid.columns)) * 2 * d * d * 8;
    const double fits = stream.sources * stream.targets / ranks * (measures > 0 ? 96 : 48) *
                        (group.ranks > 1 ? 2 : 1);  // while they are sent to the ranks of their targets
    // Of two models a layer of sources with the targets of that layer beside it, and its factor.
    const double layer = stream.of == GramOf::pair ? 0
                         : stream.of == GramOf::models
                             ? width * width * 8 * (parts_of(tokens) + 1)
                             : 4 * width * width * 8 * parts_of(tokens) / (width >= kWideLayer ? ranks : 1);
    const double remote = 2 * std::min(kRemoteTilesBytes, remote_tile_bytes(predict.pool, stream, ranks));
    work = std::max({work, records + fits, remote, layer});
  }
  return tables + work;
}

}  // namespace

double forward_bytes(const ModelConfig& config, Dtype dtype, double batch, double tensor_parallel) {
  const double attention =
      real((2 * config.heads + 2 * config.kv_heads) * config.head_size) / tensor_parallel;
  const double mlp = 2 * real(config.mlp_size) / tensor_parallel;
  return batch * (4 * real(config.hidden_size) + std::max(attention, mlp)) * bytes_of(dtype);
}

double MemoryCost::peak() const {
  return program + grams + std::max(weights + forward + waiting + attention + exchange, statistics);
}

MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group, const ModelConfig* reference) {
  MemoryCost cost;
  const double ranks = real(group.ranks), batch = batch_of(job.run, tokens, group);
  const double value = dtype == Dtype::float64 ? 8 : 4;
  const Precision precision = job.predict.product(dtype);
  const double product = multiplies_doubles(precision) ? 8 : 4;
  const bool is_copied = fastest_product(precision) == ProductKind::library;
  const std::vector<StreamSize> streams = stream_sizes(job.predict, config, reference);
  const double panel = real(tokens_of_panel(streams, precision, dtype, tokens.heldout > 0, group));
  cost.weights = study_weight_bytes(job, config, dtype, group.tensor_parallel) + kStagingBytes;
  cost.attention =
      2 * 8 * attention_size(job.predict, job.output, config);  // sums of queries, metrics of the output
  cost.forward = forward_bytes(config, dtype, batch, real(group.tensor_parallel));
  if (reference != nullptr) {
    cost.weights += reference_weight_bytes(*reference, dtype, group.tensor_parallel);
    cost.forward =
        std::max(cost.forward, forward_bytes(*reference, dtype, batch, real(group.tensor_parallel)));
  }
  for (const StreamSize& stream : streams) {
    if (!stream.is_summed()) continue;
    const LocalSize local = local_size(stream, group.grid);
    cost.grams += parts_of(tokens) * triangle_bytes(stream, group.grid);
    for (const double part : {real(tokens.fit), real(tokens.heldout)})
      cost.waiting += std::min(part, panel + batch) / ranks * stream.columns * value;
    // With several ranks, each holds two panels as they came, and a library multiplies a copy of one. In a
    // grid of one row a rank's columns are among its rows.
    const double exchanged = group.ranks == 1 ? 0
                             : group.grid.rows == 1
                                 ? 2 * local.rows
                                 : 2 * (local.rows + local.columns + stream.columns / ranks);
    const double copied = !is_copied ? 0 : group.ranks == 1 ? stream.columns : local.rows + local.columns;
    cost.exchange = std::max(cost.exchange,
                             std::min(real(tokens.total()), panel) * (exchanged * value + copied * product));
  }
  cost.statistics = statistics_bytes(job.predict, streams, config.layers, tokens, group);
  return cost;
}

}  // namespace headspan
