#include "app/plan/cost.h"

#include <algorithm>
#include <cmath>

#include "app/job/job_rules.h"
#include "app/plan/memory_cost.h"
#include "app/run/rank_resources.h"
#include "stats/layers/layer_ceiling.h"

namespace headspan {
namespace {

/// The layers that are run whole; of one more only what makes its q, k and v.
double whole_layers(const Job& job, const ModelConfig& config) {
  return real(config.layers) - (saves_attention(job) ? 0 : 1);
}

/// How many times the mean of all ranks the fullest one has, where `items` are dealt out to them evenly.
double fullest_of(double items, double ranks) { return std::ceil(items / ranks) * ranks / items; }

/// The costs of one job's phases. Sums over streams, of which each has its own Gram.
class PhaseCosts {
 public:
  PhaseCosts(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
             const GroupShape& group, const std::vector<DeviceShare>& passes)
      : job_(job),
        config_(config),
        dtype_(dtype),
        tokens_(tokens),
        group_(group),
        n_(real(tokens.total())),
        ranks_(real(group.ranks)),
        others_((ranks_ - 1) / ranks_),
        d_(real(config.head_size)),
        parts_(parts_of(tokens)),
        streams_(stream_sizes(job, config)),
        passes_(passes),
        ceilings_(job.ceiling.enabled && job.ceiling.scope != CeilingScope::causal) {}

  std::vector<PhaseCost> compute() const {
    std::vector<PhaseCost> phases{load(), forward(), gram(), pairs(), heads(), selection()};
    if (job_.ceiling.enabled) phases.push_back(ceiling());
    if (job_.overlap.enabled) phases.push_back(overlap());
    if (group_.ranks == 1)
      for (PhaseCost& phase : phases) phase.messages = 0;
    return phases;
  }

 private:
  double hops() const { return std::ceil(std::log2(ranks_)); }
  /// Messages of `count` exchanges in which all ranks tell all others how much comes, and then send it.
  double exchanges(double count) const { return count * 2 * (ranks_ - 1); }
  double width(const StreamSize& stream) const { return stream.columns / real(config_.layers); }

  /// How many times the tokens are run.
  double forwards() const {
    double run = 0;
    for (const DeviceShare& pass : passes_)
      for (const Part part : pass.parts) run += real(part == Part::fit ? tokens_.fit : tokens_.heldout);
    return passes_.empty() ? 1 : run / n_;
  }
  /// How many times the panels of a stream are exchanged.
  double gathers(std::size_t stream) const {
    for (const DeviceShare& pass : passes_)
      if (std::count(pass.streams.begin(), pass.streams.end(), stream) > 0) return real(pass.slice.of);
    return 1;
  }

  PhaseCost load() const {
    PhaseCost cost{"load"};
    const double rows = real(group_.data_parallel());
    if (job_.model.init == std::vector{WeightSource::random}) return cost;
    cost.received = weight_bytes(config_, extent_of(job_, config_), group_.tensor_parallel,
                                 planned_weight_dtype(job_, config_, dtype_)) *
                    (rows - 1) / rows;
    cost.messages = cost.received / (8.0 * (1 << 20)) + 9 * real(config_.layers) * std::ceil(std::log2(rows));
    return cost;
  }

  PhaseCost forward() const {
    PhaseCost cost{"forward"};
    const double m = real(config_.hidden_size), q = real(config_.heads) * d_,
                 kv = real(config_.kv_heads) * d_, mlp = real(config_.mlp_size);
    const double attention = 2 * q * real(tokens_.longest);  // half of the pairs, two products
    const double whole = whole_layers(job_, config_);
    cost.flops = n_ * (2 * (m * (q + 2 * kv) * real(config_.layers) + (q * m + 3 * m * mlp) * whole) +
                       attention * whole);
    const double rows = real(group_.data_parallel()), t = real(group_.tensor_parallel);
    const double batch = batch_of(job_, tokens_, group_);
    const double rounds = std::ceil(n_ / (batch * rows));
    cost.fullest = std::min(n_, rounds * batch) * rows / n_;
    // A sum goes to one rank and from there to the others.
    const double sums = 1 + 2 * whole;
    cost.received = n_ / rows * m * sums * std::max(4.0, bytes_of(dtype_)) * (t - 1) / t;
    cost.messages = rounds * sums * 2 * std::ceil(std::log2(t));
    cost.flops *= forwards();
    cost.received *= forwards();
    cost.messages *= forwards();
    for (std::size_t s = 0; s < streams_.size(); ++s)  // heads go for tokens
      cost.received +=
          gathers(s) * n_ / ranks_ * streams_[s].columns * (t - 1) / t * (dtype_ == Dtype::float64 ? 8 : 4);
    return cost;
  }

  PhaseCost gram() const {
    PhaseCost cost{"gram"};
    const double product = multiplies_doubles(job_.predict.precision) ? 8 : 4;
    const double attention = attention_size(job_, config_);
    const int operands = group_.grid.rows == 1 ? 1 : 2;  // the columns of one row of ranks are among its rows
    const double panels = std::ceil(n_ / real(tokens_of_panel(job_, config_, dtype_, parts_ > 1, group_)));
    cost.flops = real(tokens_.fit) * attention;
    cost.received = 2 * 2 * 8 * attention * others_;
    double even = cost.flops, fullest = cost.flops;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const StreamSize& stream = streams_[s];
      const double flops = n_ * stream.columns * stream.columns;
      even += flops;
      fullest += flops * fullest_of_gram(stream, config_, group_.grid);
      cost.received += gathers(s) * n_ * others_ * product * stream.columns *
                       (1 / real(group_.grid.rows) + (operands - 1) / real(group_.grid.columns));
      cost.messages += gathers(s) * panels * operands * (ranks_ - 1);
    }
    cost.flops = even;
    cost.fullest = fullest / even;
    return cost;
  }

  PhaseCost pairs() const {
    PhaseCost cost{"pairs"};
    double fullest = 0;
    for (const StreamSize& stream : streams_) {
      const double h = stream.heads, flops = h * h * d_ * d_ * d_ * (parts_ > 1 ? 6 : 2);
      cost.flops += flops;
      fullest += flops * fullest_of_gram(stream, config_, group_.grid);
      const double sources = (1 / real(group_.grid.rows) + 1 / real(group_.grid.columns) - 2 / ranks_) * h;
      cost.received += sources * (2 + parts_ * d_ * d_) * 8 + h * h / ranks_ * others_ * 40;
      cost.messages += exchanges(2) + 4 * hops();
    }
    cost.fullest = fullest / cost.flops;
    return cost;
  }

  /// Layers that a rank has targets of.
  double own_layers() const { return std::min(real(config_.layers), real(config_.layers) / ranks_ + 1); }
  /// Bytes of one layer's matrix that other ranks have.
  double remote_layer(const StreamSize& stream) const { return width(stream) * width(stream) * 8 * others_; }

  PhaseCost heads() const {
    PhaseCost cost{"heads"};
    for (const StreamSize& stream : streams_) {
      const double h = stream.heads, pairs = h * (h / real(config_.layers) - 1) / 2;
      cost.flops += (h * 4.0 / 3 + pairs * 4) * d_ * d_ * d_ + stream.columns * width(stream);
      cost.fullest = std::max(cost.fullest, fullest_of(h, ranks_));
      cost.received += own_layers() * remote_layer(stream) / 2;
      cost.messages += exchanges(2 * (1 + std::ceil(own_layers()))) + 8 * hops();
    }
    return cost;
  }

  /// Of one target: `count` joint fits, the first of which is a pair's, and what chooses their sources.
  double selection_flops(SelectionRule rule) const {
    const double d3 = d_ * d_ * d_, pool = real(job_.predict.pool);
    double flops = 0;
    for (double count = 2; count <= real(job_.predict.references); ++count) {
      flops += d3 * (count * count * count / 3 + count * count * (parts_ > 1 ? 5 : 1));
      if (rule == SelectionRule::forward) flops += d3 * pool * (4.0 / 3 + 2 * (count - 2) + 6);
    }
    return flops;
  }

  PhaseCost selection() const {
    PhaseCost cost{"selection"};
    // Forward selection looks at the fit part of its pool; then both parts of what either rule chose are
    // fetched.
    const double chosen = (real(job_.predict.references) + 1) / (real(job_.predict.pool) + 1);
    for (const StreamSize& stream : streams_)
      for (const SelectionRule rule : job_.predict.selection) {
        const double pool = remote_tile_bytes(job_, config_, stream, ranks_);
        cost.flops += stream.heads * selection_flops(rule);
        cost.fullest = std::max(cost.fullest, fullest_of(stream.heads, ranks_));
        cost.received += (rule == SelectionRule::forward ? pool : 0) + pool * chosen * chosen * parts_;
        const double rounds = std::max(1.0, std::ceil(pool / kRemoteTilesBytes));
        cost.messages += rounds * exchanges(2 * ((rule == SelectionRule::forward ? 1 : 0) + parts_));
      }
    return cost;
  }

  PhaseCost ceiling() const {
    PhaseCost cost{"ceiling"};
    for (const StreamSize& stream : streams_) {
      const double w = width(stream), layers = real(config_.layers);
      const bool wide = w >= kWideLayer;
      if (ceilings_) {
        cost.flops += layers * w * w * w * (wide ? 1 + 2 * (parts_ - 1) : w / d_ / 3);
        // A wide layer goes to one rank's GPU, or is copied, factored, inverted and multiplied over the whole
        // grid.
        if (wide && job_.run.device == ComputeDevice::cuda) {
          cost.fullest = std::max(cost.fullest, fullest_of(layers, ranks_));
          cost.received += layers / ranks_ * remote_layer(stream) / 2 * parts_;
          cost.messages += exchanges(2 * parts_ * std::ceil(layers / ranks_));
        } else if (wide) {
          cost.received += layers * remote_layer(stream) * (1 + parts_) / std::sqrt(ranks_);
          cost.messages += layers * 8 * w / d_ * hops();
        } else {
          cost.fullest = std::max(cost.fullest, fullest_of(stream.heads, ranks_));
          cost.received += own_layers() * remote_layer(stream) / 2 * parts_;
          cost.messages += exchanges(2 * parts_ * std::ceil(own_layers()));
        }
      }
      if (job_.ceiling.scope != CeilingScope::layer) {
        cost.flops += stream.columns * stream.columns * stream.columns / 3;
        cost.messages += 4 * stream.heads * hops();
      }
    }
    return cost;
  }

  PhaseCost overlap() const {
    PhaseCost cost{"overlap"};
    const double m = real(config_.hidden_size), layers = real(config_.layers);
    for (const Stream stream : job_.overlap.projections) {
      const double w = real(stream == Stream::q ? config_.heads : config_.kv_heads) * d_;
      cost.flops += layers * w * w * (m + 4.0 / 3 * w * 2);
    }
    cost.fullest =
        fullest_of(layers * real(static_cast<std::int64_t>(job_.overlap.projections.size())), ranks_);
    return cost;
  }

  const Job& job_;
  const ModelConfig& config_;
  Dtype dtype_;
  const TokenCounts& tokens_;
  const GroupShape& group_;
  double n_, ranks_, others_, d_, parts_;
  std::vector<StreamSize> streams_;
  const std::vector<DeviceShare>& passes_;
  bool ceilings_;
};

}  // namespace

double read_cost(const Job& job, const ModelConfig& config, Dtype dtype) {
  return weight_bytes(config, extent_of(job, config), 1, planned_weight_dtype(job, config, dtype));
}

std::vector<PhaseCost> phase_costs(const Job& job, const ModelConfig& config, Dtype dtype,
                                   const TokenCounts& tokens, const GroupShape& group,
                                   const std::vector<DeviceShare>& passes) {
  return PhaseCosts(job, config, dtype, tokens, group, passes).compute();
}

}  // namespace headspan
