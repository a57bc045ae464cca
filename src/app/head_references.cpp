#include "app/head_references.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "app/calibration.h"
#include "base/checked.h"
#include "dist/agreement.h"
#include "dist/threads.h"
#include "stats/causal_elimination.h"
#include "stats/head_elimination.h"
#include "stats/head_moments.h"
#include "stats/joint_fit.h"
#include "stats/layer_share.h"
#include "stats/pairwise.h"
#include "stats/reference_graph.h"

namespace headspan {
namespace {

constexpr std::int64_t kPool = 20;      // candidates of a target under causal scope
constexpr std::int64_t kCodeLeast = 4;  // of the paper's code
constexpr std::int64_t kCodeMost = 6;

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

std::vector<std::int64_t> range(std::int64_t count) {
  std::vector<std::int64_t> all(to_size(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

class ReferenceChoice {
 public:
  ReferenceChoice(const Job::Compress& rule, const std::map<std::string, RegressionData>& data,
                  const std::map<std::string, std::vector<double>>& metrics)
      : rule_(rule),
        comm_(data.begin()->second.comm()),
        layout_(data.begin()->second.layout),
        d_(layout_.head_size) {
    for (const std::string& stream : rule.streams) {  // in the order of the job
      data_.push_back(&data.at(stream));
      metrics_.push_back(&metrics.at(stream));
    }
    const double heads = static_cast<double>(layout_.heads() * static_cast<std::int64_t>(data_.size()));
    budget_ = static_cast<std::int64_t>(std::floor(rule.stored * heads * (1 + 1e-12)));
  }

  StreamReferences choose() {
    References chosen;
    if (rule_.algorithm != "headspan")
      chosen = by_graph();
    else
      chosen = rule_.scope == "layer" ? by_layer() : causally();
    StreamReferences result;
    for (std::size_t s = 0; s < data_.size(); ++s) result[rule_.streams[s]] = std::move(chosen[s]);
    return result;
  }

 private:
  [[noreturn]] void out_of_reach(std::int64_t least) const {
    const auto heads = static_cast<double>(layout_.heads() * static_cast<std::int64_t>(data_.size()));
    char share[32];
    std::snprintf(share, sizeof share, "%.4f", std::ceil(1e4 * static_cast<double>(least) / heads) / 1e4);
    throw AgreedError("compress.stored = " + std::to_string(rule_.stored) +
                          ": cannot be reached by dropping heads; " + std::string(share) + " can",
                      2);
  }

  // --- the paper's graphs ---

  References by_graph() const {
    const bool code = rule_.algorithm == "paper-code";
    const GraphRule graph{code, 1 - rule_.stored, code ? kCodeLeast : rule_.references,
                          code ? kCodeMost : rule_.references};
    References chosen;
    for (const RegressionData* data : data_) {
      const PairTable pairs = all_pairs(*data);
      const std::int64_t heads = layout_.heads();
      std::vector<double> r2(to_size(heads * heads), 0.0);
      std::copy(pairs.r2.begin(), pairs.r2.end(), r2.begin() + pairs.targets.first * heads);
      comm_.sum(r2.data(), heads * heads);  // NaN stays
      chosen.push_back(select_by_graph(r2, layout_.layer, graph));
    }
    return chosen;
  }

  // --- same-layer references ---

  /// One layer of a stream on the rank that works on it.
  struct Block {
    std::size_t stream;
    LayerShare layer;
    std::vector<double> covariance;
    Elimination elimination;
  };

  std::vector<double> layer_metric(const Block& block) const {
    const auto first = metrics_[block.stream]->begin() + block.layer.first * d_ * d_;
    return {first, first + (block.layer.last - block.layer.first) * d_ * d_};
  }

  References by_layer() const {
    const std::vector<LayerShare> layers = whole_layers(layout_);
    const auto blocks = static_cast<std::int64_t>(layers.size() * data_.size());
    if (budget_ < blocks) out_of_reach(blocks);
    std::vector<Block> own;
    for (std::int64_t first = 0; first < blocks; first += comm_.size()) {
      const std::int64_t mine = std::min(first + comm_.rank(), blocks);
      for (std::size_t s = 0; s < data_.size(); ++s) {  // each rank asks for one stream; all help with both
        const auto layer = mine < blocks && to_size(mine) / layers.size() == s
                               ? static_cast<std::int64_t>(to_size(mine) % layers.size())
                               : -1;
        const LayerShare share = layer >= 0 ? layers[to_size(layer)] : LayerShare{};
        std::vector<double> covariance = covariance_of(data_[s]->fit, share.heads(), d_);
        if (layer >= 0) own.push_back({s, share, std::move(covariance), {}});
      }
      if (mine < blocks) {
        Block& block = own.back();
        block.elimination =
            eliminate_heads(block.covariance, layer_metric(block), block.layer.last - block.layer.first, d_);
      }
    }
    return references_in_layers(own, layers, kept_counts(own, layers));
  }

  /// By block: stream, then layer.
  std::vector<std::int64_t> kept_counts(const std::vector<Block>& own,
                                        const std::vector<LayerShare>& layers) const {
    std::vector<std::vector<double>> losses;
    for (std::size_t b = 0; b < layers.size() * data_.size(); ++b) {
      const LayerShare& layer = layers[b % layers.size()];
      losses.emplace_back(to_size(layer.last - layer.first + 1), 0.0);
      for (const Block& block : own)
        if (block.stream == b / layers.size() && block.layer.first == layer.first)
          std::copy(block.elimination.loss.begin() + 1, block.elimination.loss.end(),
                    losses.back().begin() + 1);
      comm_.sum(losses.back().data(), static_cast<std::int64_t>(losses.back().size()));
    }
    return allocate_heads(losses, budget_);
  }

  References references_in_layers(const std::vector<Block>& own, const std::vector<LayerShare>& layers,
                                  const std::vector<std::int64_t>& counts) const {
    const std::int64_t heads = layout_.heads(), streams = static_cast<std::int64_t>(data_.size());
    std::vector<std::int64_t> table(to_size(streams * heads * rule_.references), 0);  // head + 1
    for (const Block& block : own) {
      const auto layer = std::find_if(layers.begin(), layers.end(),
                                      [&](const LayerShare& l) { return l.first == block.layer.first; }) -
                         layers.begin();
      choose_in_layer(block, counts[block.stream * layers.size() + to_size(layer)], table);
    }
    comm_.sum(table.data(), static_cast<std::int64_t>(table.size()));
    References chosen(data_.size(), std::vector<std::vector<std::int64_t>>(to_size(heads)));
    for (std::int64_t at = 0; at < streams * heads * rule_.references; ++at)
      if (table[to_size(at)] > 0)
        chosen[to_size(at / rule_.references / heads)][to_size(at / rule_.references % heads)].push_back(
            table[to_size(at)] - 1);
    return chosen;
  }

  /// References of the dropped heads of a block when it keeps `count` heads.
  void choose_in_layer(const Block& block, std::int64_t count, std::vector<std::int64_t>& table) const {
    const std::int64_t heads = block.layer.last - block.layer.first;
    std::vector<std::int64_t> kept = range(heads);
    const auto& dropped = block.elimination.dropped;
    for (std::int64_t k = 0; k < heads - count; ++k)
      kept.erase(std::find(kept.begin(), kept.end(), dropped[to_size(k)]));
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t k = 0; k < heads - count; ++k) {
      const std::int64_t target = dropped[to_size(k)];
      std::vector<std::int64_t> candidates(kept), list;
      candidates.push_back(target);
      const MetricProblem problem = problem_of(block, candidates);
      const MetricChoice choice = problem.choose(ascending(problem), rule_.references);
      for (std::size_t i = 0; i < choice.references.size(); ++i)
        table[to_size(
                  (static_cast<std::int64_t>(block.stream) * layout_.heads() + block.layer.first + target) *
                  rule_.references) +
              i] = block.layer.first + kept[to_size(choice.references[i])] + 1;
    }
  }

  /// Positions of the candidates by their own loss.
  static std::vector<std::int64_t> ascending(const MetricProblem& problem) {
    std::vector<double> loss;
    for (std::int64_t c = 0; c < problem.candidates(); ++c) loss.push_back(problem.loss_of(c));
    std::vector<std::int64_t> order = range(problem.candidates());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return loss[to_size(a)] < loss[to_size(b)]; });
    return order;
  }

  /// heads: within the block's layer, the target last.
  MetricProblem problem_of(const Block& block, const std::vector<std::int64_t>& heads) const {
    const std::int64_t size = (block.layer.last - block.layer.first) * d_,
                       side = static_cast<std::int64_t>(heads.size()) * d_;
    std::vector<double> moments(to_size(side * side));
    const auto n = static_cast<double>(data_[block.stream]->fit.tokens);
    for (std::int64_t j = 0; j < side; ++j)
      for (std::int64_t i = 0; i < side; ++i) {
        const std::int64_t row = heads[to_size(i / d_)] * d_ + i % d_,
                           column = heads[to_size(j / d_)] * d_ + j % d_;
        moments[to_size(i + j * side)] =
            n * block.covariance[to_size(std::max(row, column) + std::min(row, column) * size)];
      }
    std::vector<std::int64_t> all;
    for (const std::int64_t head : heads) all.push_back(block.layer.first + head);
    return make_problem(block.stream, std::move(moments), all);
  }

  /// heads: of the stream, the target last.
  MetricProblem make_problem(std::size_t stream, std::vector<double> moments,
                             const std::vector<std::int64_t>& heads) const {
    const RegressionData& data = *data_[stream];
    const auto metric = metrics_[stream]->begin() + heads.back() * d_ * d_;
    return {data.rules, d_, std::move(moments), gather(data.sst, heads, d_),
            std::vector<double>(metric, metric + d_ * d_)};
  }

  // --- references of earlier layers too ---

  /// A target on the rank that answers for it.
  struct Pool {
    std::vector<std::int64_t> candidates;
    MetricProblem problem;
  };

  References causally() {
    const std::int64_t heads = layout_.heads();
    std::vector<std::vector<std::vector<std::int64_t>>> candidates;
    for (std::size_t s = 0; s < data_.size(); ++s) {
      std::vector<std::int64_t> table(to_size(heads * kPool), 0);  // head + 1
      for (std::int64_t first = 0; first < heads; first += comm_.size())
        make_pool(s, first + comm_.rank() < heads ? first + comm_.rank() : -1, table);
      comm_.sum(table.data(), heads * kPool);
      candidates.emplace_back(to_size(heads));
      for (std::int64_t at = 0; at < heads * kPool; ++at)
        if (table[to_size(at)] > 0) candidates.back()[to_size(at / kPool)].push_back(table[to_size(at)] - 1);
    }
    References chosen =
        eliminate_causally(candidates, layout_.layer, budget_,
                           [&](const std::vector<ReferenceQuery>& queries) { return answer(queries); });
    if (chosen.empty()) out_of_reach(static_cast<std::int64_t>(data_.size()));
    return chosen;
  }

  /// -1: no target here, but others need this rank's tiles. Collective.
  void make_pool(std::size_t stream, std::int64_t target, std::vector<std::int64_t>& table) {
    std::vector<std::int64_t> heads = best_sources(stream, target);
    for (std::size_t i = 0; i < heads.size(); ++i) table[to_size(target * kPool) + i] = heads[i] + 1;
    if (target >= 0) heads.push_back(target);
    const TileViews views = view_tiles(data_[stream]->fit.matrix, d_, tiles_among(heads));
    if (target < 0) return;
    const std::int64_t side = static_cast<std::int64_t>(heads.size()) * d_;
    std::vector<double> moments(to_size(side * side));
    assemble(heads, d_, views.tiles.data(), moments.data());
    MetricProblem problem = make_problem(stream, std::move(moments), heads);
    heads.pop_back();
    pools_.emplace(std::make_pair(static_cast<std::int64_t>(stream), target),
                   Pool{heads, std::move(problem)});
  }

  /// The causal heads that leave least of the target on their own, at most kPool, ascending by that loss.
  /// Collective.
  std::vector<std::int64_t> best_sources(std::size_t stream, std::int64_t target) const {
    std::vector<std::int64_t> sources;
    for (std::int64_t h = 0; h < layout_.heads() && target >= 0; ++h)
      if (h != target && layout_.layer[to_size(h)] <= layout_.layer[to_size(target)]) sources.push_back(h);
    std::vector<Tile> tiles;
    for (const std::int64_t source : sources) {
      tiles.push_back({source, source});
      tiles.push_back({std::max(source, target), std::min(source, target)});
    }
    const TileViews views = view_tiles(data_[stream]->fit.matrix, d_, tiles);
    std::vector<double> gain(sources.size());
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < sources.size(); ++i)
      gain[i] = pair_gain(stream, views.tiles[2 * i], views.tiles[2 * i + 1], sources[i], target);
    std::vector<std::int64_t> order = range(static_cast<std::int64_t>(sources.size()));
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return gain[to_size(a)] > gain[to_size(b)]; });
    std::vector<std::int64_t> best;
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), kPool); ++i)
      best.push_back(sources[to_size(order[i])]);
    return best;
  }

  /// tr(M X X^T) for X = G_tr L^-T: what the source alone explains.
  double pair_gain(std::size_t stream, const TileView& own, const TileView& cross, std::int64_t source,
                   std::int64_t target) const {
    const RegressionData& data = *data_[stream];
    std::vector<double> turned(to_size(d_ * d_));  // G_tr
    for (std::int64_t j = 0; j < d_; ++j)
      for (std::int64_t i = 0; i < d_; ++i)
        turned[to_size(i + j * d_)] =
            target > source ? cross.values[i + j * cross.leading] : cross.values[j + i * cross.leading];
    const Factor factor = factor_regressors(own.values, d_, own.leading, &data.sst[to_size(source * d_)],
                                            data.rules.pivot_tolerance(d_));
    const std::vector<double> x = whiten(factor, turned.data(), d_, d_);
    const double* m = &(*metrics_[stream])[to_size(target * d_ * d_)];
    double gain = 0;
    for (std::int64_t k = 0; k < factor.rank; ++k)
      for (std::int64_t a = 0; a < d_; ++a) {
        double sum = 0;
        for (std::int64_t b = 0; b < d_; ++b) sum += m[a * d_ + b] * x[to_size(b + k * d_)];
        gain += sum * x[to_size(a + k * d_)];
      }
    return gain;
  }

  /// Each rank answers for its targets; all learn all answers. Collective.
  std::vector<MetricChoice> answer(const std::vector<ReferenceQuery>& queries) const {
    const std::int64_t width = rule_.references + 1;  // loss, then positions + 1
    std::vector<double> table(queries.size() * to_size(width), 0.0);
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const auto pool = pools_.find({queries[q].target.stream, queries[q].target.head});
      if (pool == pools_.end()) continue;
      const MetricChoice choice = pool->second.problem.choose(queries[q].allowed, rule_.references);
      table[q * to_size(width)] = choice.loss;
      for (std::size_t i = 0; i < choice.references.size(); ++i)
        table[q * to_size(width) + 1 + i] = static_cast<double>(choice.references[i] + 1);
    }
    comm_.sum(table.data(), static_cast<std::int64_t>(table.size()));
    std::vector<MetricChoice> choices;
    for (std::size_t q = 0; q < queries.size(); ++q) {
      choices.push_back({{}, table[q * to_size(width)]});
      for (std::int64_t i = 1; i < width && table[q * to_size(width) + to_size(i)] > 0; ++i)
        choices.back().references.push_back(
            static_cast<std::int64_t>(table[q * to_size(width) + to_size(i)]) - 1);
    }
    return choices;
  }

  const Job::Compress& rule_;
  const Comm& comm_;
  const HeadLayout& layout_;
  std::int64_t d_;
  std::int64_t budget_ = 0;                          // heads that are kept
  std::vector<const RegressionData*> data_;          // by stream of the job
  std::vector<const std::vector<double>*> metrics_;  // likewise
  std::map<std::pair<std::int64_t, std::int64_t>, Pool> pools_;
};

}  // namespace

StreamReferences choose_references(const Job::Compress& rule,
                                   const std::map<std::string, RegressionData>& data,
                                   const std::map<std::string, std::vector<double>>& metrics) {
  return ReferenceChoice(rule, data, metrics).choose();
}

}  // namespace headspan
