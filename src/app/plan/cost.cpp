#include "app/plan/cost.h"

#include <algorithm>
#include <cmath>

#include "app/job/job_rules.h"
#include "app/plan/memory_cost.h"
#include "app/run/rank_resources.h"
#include "device/device_values.h"
#include "stats/layers/layer_ceiling.h"

namespace headspan {
namespace {

/// Returns the largest share of a rank over the mean share, when `items` are spread as evenly as possible.
double fullest_of(double items, double ranks) { return std::ceil(items / ranks) * ranks / items; }

/// Computes the costs of the phases. Most are sums over the streams, each of which has its own Gram.
class PhaseCosts {
 public:
  PhaseCosts(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
             const GroupShape& group, const std::vector<DeviceShare>& passes, const ModelConfig* reference)
      : job_(job),
        config_(config),
        reference_(reference),
        dtype_(dtype),
        tokens_(tokens),
        group_(group),
        n_(real(tokens.total())),
        ranks_(real(group.ranks)),
        others_((ranks_ - 1) / ranks_),
        d_(real(config.head_size)),
        parts_(parts_of(tokens)),
        streams_(stream_sizes(job.predict, config, reference)),
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
  /// Returns the messages of `count` exchanges: every rank tells every other how much it sends, then sends
  /// it.
  double exchanges(double count) const { return count * 2 * (ranks_ - 1); }
  double width(const StreamSize& stream) const { return stream.columns / real(config_.layers); }

  /// Returns how many times the tokens are run.
  double forwards() const {
    double run = 0;
    for (const DeviceShare& pass : passes_)
      for (const Part part : pass.parts) run += real(part == Part::fit ? tokens_.fit : tokens_.heldout);
    return passes_.empty() ? 1 : run / n_;
  }
  /// Returns how many times the panels of a stream are exchanged.
  double gathers(std::size_t stream) const {
    for (const DeviceShare& pass : passes_)
      if (std::count(pass.streams.begin(), pass.streams.end(), stream) > 0) return real(pass.slice.of);
    return 1;
  }

  /// What the ranks of one node read by themselves is received if they are on several (weight_loader.h).
  PhaseCost load() const {
    PhaseCost cost{"load"};
    const double rows = real(group_.data_parallel());
    double weights = 0, layers = 0;
    if (job_.model.init != std::vector{WeightSource::random}) {
      weights += study_weight_bytes(job_, config_, dtype_, group_.tensor_parallel);
      layers += real(config_.layers);
    }
    if (reference_ != nullptr) {
      weights += reference_weight_bytes(*reference_, dtype_, group_.tensor_parallel);
      layers += real(reference_->layers);
    }
    cost.received = weights * (rows - 1) / rows;
    cost.messages = cost.received / (8.0 * (1 << 20)) + 9 * layers * std::ceil(std::log2(rows));
    return cost;
  }

  /// Returns the operations of the forward of a token, of whose layers `whole` run to their end.
  double forward_flops(const ModelConfig& config, double whole) const {
    const double m = real(config.hidden_size), q = real(config.heads * config.head_size),
                 kv = real(config.kv_heads * config.head_size), mlp = real(config.mlp_size);
    const double mlp_matrices = config.gated ? 3 : 2;
    const double attention = 2 * q * real(tokens_.longest);  // half of the pairs, two products
    const double attending = captures(job_.predict, Stream::z) ? real(config.layers) : whole;
    return 2 * (m * (q + 2 * kv) * real(config.layers) + (q * m + mlp_matrices * m * mlp) * whole) +
           attention * attending;
  }

  /// Returns the bytes per token that are summed over the ranks of a row. A sum over ranks goes to one of
  /// them and from there to the others.
  double summed_bytes(const ModelConfig& config, double sums) const {
    return real(config.hidden_size) * sums * std::max(4.0, bytes_of(dtype_));
  }

  PhaseCost forward() const {
    PhaseCost cost{"forward"};
    // Of the last layer only what is captured is computed, unless attention is saved.
    const double whole = real(config_.layers) - (saves_attention(job_.predict, job_.output) ? 0 : 1);
    const double scored = job_.attention.scores ? real(kMostScoredTokens) : 0;
    cost.flops = (n_ + scored) * forward_flops(config_, whole);
    const double rows = real(group_.data_parallel()), t = real(group_.tensor_parallel);
    const double batch = batch_of(job_.run, tokens_, group_);
    const double rounds = std::ceil(n_ / (batch * rows));
    cost.fullest = std::min(n_, rounds * batch) * rows / n_;
    double sums = 1 + 2 * whole, bytes = summed_bytes(config_, sums);
    if (reference_ != nullptr) {
      const double other = real(reference_->layers) - 1;
      cost.flops += n_ * forward_flops(*reference_, other);
      bytes += summed_bytes(*reference_, 1 + 2 * other);
      sums += 1 + 2 * other;
    }
    cost.received = n_ / rows * bytes * (t - 1) / t;
    cost.messages = rounds * sums * 2 * std::ceil(std::log2(t));
    cost.flops *= forwards();
    cost.received *= forwards();
    cost.messages *= forwards();
    // The ranks of a row exchange their heads of all tokens for all heads of their tokens.
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (streams_[s].is_summed())
        cost.received +=
            gathers(s) * n_ / ranks_ * streams_[s].columns * (t - 1) / t * (dtype_ == Dtype::float64 ? 8 : 4);
    return cost;
  }

  /// Returns how many elements of a Gram are summed, twice those on and below the diagonal. The reference's
  /// own may be read from a file.
  double summed_elements(const StreamSize& stream) const {
    const bool is_read = stream.of == GramOf::models && !job_.cross.grams.empty();
    const double read = is_read ? stream.targets * stream.head_size() : 0;
    return stream.columns * stream.columns - read * read;
  }

  PhaseCost gram() const {
    PhaseCost cost{"gram"};
    // Hosts exchange activations in their own type, GPUs in that of the product.
    const Precision precision = job_.predict.product(dtype_);
    const double value = job_.run.device == ComputeDevice::cuda ? real(panel_value_bytes(precision))
                         : dtype_ == Dtype::float64             ? 8
                                                                : 4;
    const double attention = attention_size(job_.predict, job_.output, config_);
    const int operands = group_.grid.rows == 1 ? 1 : 2;  // on one row of ranks the columns are among the rows
    const double panels =
        std::ceil(n_ / real(tokens_of_panel(streams_, precision, dtype_, parts_ > 1, group_)));
    cost.flops = real(tokens_.fit) * attention;
    cost.received = 2 * 2 * 8 * attention * others_;
    double even = cost.flops, fullest = cost.flops;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const StreamSize& stream = streams_[s];
      if (!stream.is_summed()) continue;
      const double flops = n_ * summed_elements(stream);
      even += flops;
      fullest += flops * fullest_of_gram(stream, group_.grid);
      cost.received += gathers(s) * n_ * others_ * value * stream.columns *
                       (1 / real(group_.grid.rows) + (operands - 1) / real(group_.grid.columns));
      cost.messages += gathers(s) * panels * operands * (ranks_ - 1);
    }
    cost.flops = even;
    cost.fullest = fullest / even;
    return cost;
  }

  /// Returns the operations that the measures of similarity take for each pair, in d^3. Singular values run
  /// at a tenth of the speed of products.
  double similarity_products() const {
    double products = 0;
    for (const SimilarityMeasure measure : job_.predict.similarity)
      products += measure == SimilarityMeasure::cca ? 2 : measure == SimilarityMeasure::procrustes ? 13 : 0;
    return products;
  }

  PhaseCost pairs() const {
    PhaseCost cost{"pairs"};
    double fullest = 0;
    for (const StreamSize& stream : streams_) {
      const double h = stream.heads, d = stream.head_size(),
                   fits = (stream.of == GramOf::models ? 2 : 1) * stream.sources * stream.targets,
                   flops = fits * d * d * d * ((parts_ > 1 ? 6 : 2) + similarity_products());
      cost.flops += flops;
      fullest += flops * fullest_of_gram(stream, group_.grid);
      const double sources = (1 / real(group_.grid.rows) + 1 / real(group_.grid.columns) - 2 / ranks_) * h;
      cost.received += sources * (2 + parts_ * d_ * d_) * 8 + fits / ranks_ * others_ * 40;
      cost.messages += exchanges(2) + 4 * hops();
    }
    cost.fullest = fullest / cost.flops;
    return cost;
  }

  /// Returns an upper bound of the number of layers that a rank's targets lie in.
  double layers_of_rank() const { return std::min(real(config_.layers), real(config_.layers) / ranks_ + 1); }
  /// Returns the bytes of one layer's matrix that other ranks hold.
  double remote_layer(const StreamSize& stream) const { return width(stream) * width(stream) * 8 * others_; }

  PhaseCost heads() const {
    PhaseCost cost{"heads"};
    for (const StreamSize& stream : streams_) {
      if (stream.is_pair()) continue;
      const double h = stream.heads, pairs = h * (h / real(config_.layers) - 1) / 2;
      cost.flops += (h * 4.0 / 3 + pairs * 4) * d_ * d_ * d_ + stream.columns * width(stream);
      cost.fullest = std::max(cost.fullest, fullest_of(h, ranks_));
      cost.received += layers_of_rank() * remote_layer(stream) / 2;
      cost.messages += exchanges(2 * (1 + std::ceil(layers_of_rank()))) + 8 * hops();
    }
    return cost;
  }

  /// Returns the operations for one target: joint fits of 2, 3, .. references, and the choice of the
  /// references. Fits of a single reference are counted as pairs.
  double selection_flops(bool forward) const {
    const double d3 = d_ * d_ * d_, pool = real(job_.predict.pool);
    double flops = 0;
    for (std::int64_t n = 2; n <= job_.predict.references; ++n) {
      const double count = real(n);
      flops += d3 * (count * count * count / 3 + count * count * (parts_ > 1 ? 5 : 1));
      if (forward) flops += d3 * pool * (4.0 / 3 + 2 * (count - 2) + 6);
    }
    return flops;
  }

  PhaseCost selection() const {
    PhaseCost cost{"selection"};
    // Forward selection fetches the fit part of its pool. Then both parts of the chosen references are
    // fetched, by either rule.
    const double chosen = (real(job_.predict.references) + 1) / (real(job_.predict.pool) + 1);
    for (const StreamSize& stream : streams_)
      for (const SelectionRule rule : job_.predict.selection) {
        const bool forward = rule == SelectionRule::forward;
        const double pool = remote_tile_bytes(job_.predict.pool, stream, ranks_);
        // Of two streams causal sources and all, of two models both directions.
        const double scopes = stream.is_pair() ? 2 : 1;
        cost.flops += scopes * stream.targets * selection_flops(forward);
        cost.fullest = std::max(cost.fullest, fullest_of(stream.targets, ranks_));
        cost.received += scopes * ((forward ? pool : 0) + pool * chosen * chosen * parts_);
        const double rounds = std::max(1.0, std::ceil(pool / kRemoteTilesBytes));
        cost.messages += scopes * rounds * exchanges(2 * ((forward ? 1 : 0) + parts_));
      }
    for (const StreamSize& stream : streams_) {
      if (stream.of != GramOf::models) continue;
      const double w = width(stream), layer = w * w * w * (1.0 / 24 + (parts_ > 1 ? 1.0 / 2 : 1.0 / 8));
      cost.flops += 2 * real(config_.layers) * layer;  // the layers of each model by those of the other
      cost.received += 2 * layers_of_rank() * remote_layer(stream) * parts_ / 2;
      cost.messages += 2 * layers_of_rank() * exchanges(2 * parts_);
    }
    return cost;
  }

  PhaseCost ceiling() const {
    PhaseCost cost{"ceiling"};
    for (const StreamSize& stream : streams_) {
      if (stream.is_pair()) continue;
      const double w = width(stream), layers = real(config_.layers);
      const bool wide = w >= kWideLayer;
      if (ceilings_) {
        cost.flops += layers * w * w * w * (wide ? 1 + 2 * (parts_ - 1) : w / d_ / 3);
        // A wide layer is inverted on one rank's GPU, or without GPUs by ScaLAPACK on the whole grid.
        if (wide && job_.run.device == ComputeDevice::cuda) {
          cost.fullest = std::max(cost.fullest, fullest_of(layers, ranks_));
          cost.received += layers / ranks_ * remote_layer(stream) / 2 * parts_;
          cost.messages += exchanges(2 * parts_ * std::ceil(layers / ranks_));
        } else if (wide) {
          cost.received += layers * remote_layer(stream) * (1 + parts_) / std::sqrt(ranks_);
          cost.messages += layers * 8 * w / d_ * hops();
        } else {
          cost.fullest = std::max(cost.fullest, fullest_of(stream.heads, ranks_));
          cost.received += layers_of_rank() * remote_layer(stream) / 2 * parts_;
          cost.messages += exchanges(2 * parts_ * std::ceil(layers_of_rank()));
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
      const double w = real(config_.heads_of(stream)) * d_;
      cost.flops += layers * w * w * (m + 4.0 / 3 * w * 2);
    }
    cost.fullest =
        fullest_of(layers * real(static_cast<std::int64_t>(job_.overlap.projections.size())), ranks_);
    return cost;
  }

  const Job& job_;
  const ModelConfig& config_;
  const ModelConfig* reference_;
  Dtype dtype_;
  const TokenCounts& tokens_;
  const GroupShape& group_;
  double n_, ranks_, others_, d_, parts_;
  std::vector<StreamSize> streams_;
  const std::vector<DeviceShare>& passes_;
  bool ceilings_;
};

}  // namespace

std::vector<PhaseCost> phase_costs(const Job& job, const ModelConfig& config, Dtype dtype,
                                   const TokenCounts& tokens, const GroupShape& group,
                                   const std::vector<DeviceShare>& passes, const ModelConfig* reference) {
  return PhaseCosts(job, config, dtype, tokens, group, passes, reference).compute();
}

}  // namespace headspan
