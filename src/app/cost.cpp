#include "app/cost.h"

#include <algorithm>
#include <cmath>

#include "app/capture.h"
#include "app/gram_source.h"
#include "app/layout.h"
#include "dist/block_cyclic.h"
#include "model/weights.h"
#include "stats/collector.h"

namespace headspan {
namespace {

/// What a process holds before it does anything: measured with LibTorch 1.13 and Open MPI 4.1.
constexpr double kProgramBytes = 170e6;
constexpr double kStagingBytes = 2 * 8.0 * (1 << 20);   // model/weight_loader.cpp
constexpr double kRemoteTilesBytes = 64.0 * (1 << 20);  // stats/selection.cpp

double real(std::int64_t n) { return static_cast<double>(n); }

double bytes_of(Dtype dtype) {
  if (dtype == Dtype::float64) return 8;
  return dtype == Dtype::float32 ? 4 : 2;
}

/// What of a stream is captured, in the sizes that costs depend on.
struct StreamSize {
  double heads, columns;
};

std::vector<StreamSize> stream_sizes(const Job& job, const ModelConfig& config) {
  std::vector<StreamSize> sizes;
  for (const std::string& name : job.predict.streams) {
    const std::int64_t heads = (name == "q" ? config.heads : config.kv_heads) * config.layers;
    sizes.push_back({real(heads), real(heads * config.head_size)});
  }
  return sizes;
}

/// The layers that are run whole; of one more only what makes its q, k and v.
double whole_layers(const Job& job, const ModelConfig& config) {
  return real(config.layers) - (saves_attention(job) ? 0 : 1);
}

/// The weights that a study reads.
Extent extent_of(const Job& job, const ModelConfig& config) { return {config.layers, saves_attention(job)}; }

/// Numbers of one matrix for each query head, where what attention does is summed.
double attention_size(const Job& job, const ModelConfig& config) {
  return saves_attention(job) ? real(config.layers * config.heads * config.head_size * config.head_size) : 0;
}

double parts_of(const TokenCounts& tokens) { return tokens.heldout > 0 ? 2 : 1; }

std::int64_t tokens_of_panel(const Job& job, const ModelConfig& config, Dtype dtype,
                             const TokenCounts& tokens, const GroupShape& group) {
  std::vector<std::int64_t> columns;
  for (const StreamSize& stream : stream_sizes(job, config))
    columns.push_back(static_cast<std::int64_t>(stream.columns));
  return dtype == Dtype::float64
             ? panel_tokens<double>(group.grid, columns, product_precision(job.predict.precision),
                                    tokens.heldout > 0)
             : panel_tokens<float>(group.grid, columns, product_precision(job.predict.precision),
                                   tokens.heldout > 0);
}

/// Tokens of one batch of a data-parallel row (app/run_model.cpp, app/rounds.h).
double batch_of(const Job& job, const TokenCounts& tokens, const GroupShape& group) {
  const std::int64_t share = (tokens.total() + group.data_parallel() - 1) / group.data_parallel();
  const std::int64_t batch = job.run.batch_tokens.value_or(std::min(CaptureRequest{}.batch_tokens, share));
  return real(std::max(batch, std::min(tokens.longest, tokens.total())));
}

/// Local rows and columns of the fullest rank for a stream's Gram.
struct LocalSize {
  double rows, columns;
};

LocalSize local_size(const StreamSize& stream, const ModelConfig& config, const GridShape& grid) {
  const std::int64_t columns = static_cast<std::int64_t>(stream.columns);
  const std::int64_t block = gram_block(grid, columns / config.head_size, config.head_size);
  const BlockCyclic rows{columns, block, static_cast<int>(grid.rows), 0};
  const BlockCyclic cols{columns, block, static_cast<int>(grid.columns), 0};
  return {real(rows.local_size(0)), real(cols.local_size(0))};
}

/// Of the activations of a batch that are alive at once, in the widest step of a layer.
double forward_bytes(const ModelConfig& config, Dtype dtype, double batch, double tensor_parallel) {
  const double attention =
      real((2 * config.heads + 2 * config.kv_heads) * config.head_size) / tensor_parallel;
  const double mlp = 2 * real(config.mlp_size) / tensor_parallel;
  return batch * (4 * real(config.hidden_size) + std::max(attention, mlp)) * bytes_of(dtype);
}

/// Tiles of other ranks that the joint regressions of one rank's targets take.
double remote_tile_bytes(const Job& job, const ModelConfig& config, const StreamSize& stream, double ranks) {
  const double side = (real(job.predict.pool) + 1) * real(config.head_size);
  return stream.heads / ranks * side * side / 2 * 8 * (ranks - 1) / ranks;
}

/// Tables of all streams; of one stream at a time what its statistics take besides.
double statistics_bytes(const Job& job, const ModelConfig& config, const TokenCounts& tokens,
                        const GroupShape& group) {
  const double d = real(config.head_size), ranks = real(group.ranks);
  double tables = 0, work = 0;
  for (const StreamSize& stream : stream_sizes(job, config)) {
    const double h = stream.heads, width = stream.columns / real(config.layers);
    tables += h * h * (3 * 8 + 1) / ranks + h * d * 3 * 8 / ranks + h * width / d * 8;
    const double records = (h / real(group.grid.rows) + h / real(group.grid.columns)) * 2 * d * d * 8;
    const double fits = h * h / ranks * 48 * (group.ranks > 1 ? 2 : 1);  // on their way to their targets
    const double layer = 4 * width * width * 8 * parts_of(tokens) / (width >= 512 ? ranks : 1);
    const double remote = 2 * std::min(kRemoteTilesBytes, remote_tile_bytes(job, config, stream, ranks));
    work = std::max({work, records + fits, remote, layer});
  }
  return tables + work;
}

}  // namespace

double MemoryCost::peak() const {
  return program + grams + std::max(weights + forward + waiting + attention + exchange, statistics);
}

MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group) {
  MemoryCost cost;
  const double ranks = real(group.ranks), batch = batch_of(job, tokens, group);
  const double value = dtype == Dtype::float64 ? 8 : 4;
  const double product = multiplies_doubles(product_precision(job.predict.precision)) ? 8 : 4;
  const double panel = real(tokens_of_panel(job, config, dtype, tokens, group));
  cost.program = kProgramBytes;
  cost.weights = real(weight_bytes(config, extent_of(job, config), group.tensor_parallel,
                                   planned_weight_dtype(job, config, dtype))) +
                 kStagingBytes;
  cost.attention = 2 * 8 * attention_size(job, config);  // of queries, of the output
  cost.forward = forward_bytes(config, dtype, batch, real(group.tensor_parallel));
  for (const StreamSize& stream : stream_sizes(job, config)) {
    const LocalSize local = local_size(stream, config, group.grid);
    cost.grams += parts_of(tokens) * local.rows * local.columns * 8;
    for (const double part : {real(tokens.fit), real(tokens.heldout)})
      cost.waiting += std::min(part, panel + batch) / ranks * stream.columns * value;
    const double operands = std::min(real(tokens.total()), panel) * product;
    const double exchanged =
        group.ranks == 1 ? stream.columns : 2 * (local.rows + local.columns) + 2 * stream.columns / ranks;
    cost.exchange = std::max(cost.exchange, operands * exchanged);
  }
  cost.statistics = statistics_bytes(job, config, tokens, group);
  return cost;
}

WorkCost work_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens) {
  WorkCost cost;
  const double m = real(config.hidden_size), d = real(config.head_size), q = real(config.heads) * d,
               kv = real(config.kv_heads) * d, n = real(tokens.total());
  const double projections = m * (q + 2 * kv), rest = q * m + 3 * m * real(config.mlp_size);
  const double attention = 2 * q * real(tokens.longest);  // half of the pairs, two products
  const double whole = whole_layers(job, config);
  cost.forward = n * (2 * (projections * real(config.layers) + rest * whole) + attention * whole);
  cost.read = real(weight_bytes(config, extent_of(job, config), 1, planned_weight_dtype(job, config, dtype)));
  cost.grams = real(tokens.fit) * attention_size(job, config);
  const double both = parts_of(tokens), references = real(job.predict.references);
  for (const StreamSize& stream : stream_sizes(job, config)) {
    const double h = stream.heads, width = stream.columns / real(config.layers);
    cost.grams += n * stream.columns * stream.columns;
    cost.statistics += h * h * d * d * d * (both > 1 ? 6 : 2);
    for (double count = 1; count <= references; ++count) {
      const double p = count * d;
      cost.statistics += real(static_cast<std::int64_t>(job.predict.selection.size())) * h *
                         (p * p * p / 3 + d * p * p * (both > 1 ? 5 : 1));
    }
    if (job.ceiling.enabled && job.ceiling.scope != "causal")
      cost.statistics +=
          real(config.layers) * width * width * width * (width >= 512 ? 1 + 2 * (both - 1) : width / d / 3);
    if (job.ceiling.enabled && job.ceiling.scope != "layer")
      cost.statistics += stream.columns * stream.columns * stream.columns / 3;
  }
  if (job.overlap.enabled)
    for (const std::string& name : job.overlap.projections) {
      const double width = name == "q" ? q : kv;
      cost.statistics += real(config.layers) * width * width * (m + 4.0 / 3 * width * 2);
    }
  return cost;
}

TrafficCost traffic_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                         const GroupShape& group) {
  TrafficCost cost;
  if (group.ranks == 1) return cost;
  const double n = real(tokens.total()), ranks = real(group.ranks), t = real(group.tensor_parallel);
  const double product = multiplies_doubles(product_precision(job.predict.precision)) ? 8 : 4;
  const double d = real(config.head_size), both = parts_of(tokens);
  const double rows = real(group.data_parallel());
  if (job.model.init != Words{"random"})
    cost.weights = real(weight_bytes(config, extent_of(job, config), group.tensor_parallel,
                                     planned_weight_dtype(job, config, dtype))) *
                   (rows - 1) / rows;
  // A sum goes to one rank and from there to the others.
  cost.tensor_parallel = n / rows * real(config.hidden_size) * (1 + 2 * whole_layers(job, config)) *
                         std::max(4.0, bytes_of(dtype)) * (t - 1) / t;
  cost.panels = 2 * 2 * 8 * attention_size(job, config) * (ranks - 1) / ranks;
  for (const StreamSize& stream : stream_sizes(job, config)) {
    const double local = stream.columns / real(group.grid.rows) + stream.columns / real(group.grid.columns);
    cost.heads += n / ranks * stream.columns * (t - 1) / t * (dtype == Dtype::float64 ? 8 : 4);
    cost.panels += n * (ranks - 1) / ranks * local * product;
    const double h = stream.heads;
    const double sources = (1 / real(group.grid.rows) + 1 / real(group.grid.columns) - 2 / ranks) * h;
    cost.statistics += sources * (2 + both * d * d) * 8 + h * h / ranks * (ranks - 1) / ranks * 40;
    // Forward selection looks at the fit part of its pool; then both parts of what either rule chose are
    // fetched.
    const double chosen = (real(job.predict.references) + 1) / (real(job.predict.pool) + 1);
    const double pool = remote_tile_bytes(job, config, stream, ranks);
    for (const std::string& rule : job.predict.selection)
      cost.statistics += (rule == "forward" ? pool : 0) + pool * chosen * chosen * both;
    // The layers of its targets, whole: of the fit part for the angles, of both for ceilings target by
    // target.
    const double width = stream.columns / real(config.layers),
                 layer = width * width * 8 * (ranks - 1) / ranks;
    const double own = std::min(real(config.layers), real(config.layers) / ranks + 1);
    const bool ceilings = job.ceiling.enabled && job.ceiling.scope != "causal";
    cost.statistics += own * layer / 2 * (1 + (ceilings && width < 512 ? both : 0));
    // A wide layer is copied, factored, inverted and multiplied over the whole grid.
    if (ceilings && width >= 512)
      cost.statistics += real(config.layers) * layer * (1 + both) / std::sqrt(ranks);
  }
  return cost;
}

}  // namespace headspan
