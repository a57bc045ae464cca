#include "app/compress/layer_references.h"

#include <algorithm>
#include <numeric>

#include "app/compress/calibration.h"
#include "base/checked.h"
#include "dist/threads.h"
#include "stats/compression/head_elimination.h"
#include "stats/layers/layer_targets.h"

namespace headspan {
namespace {

std::vector<std::int64_t> range(std::int64_t count) {
  std::vector<std::int64_t> all(to_size(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

/// One layer of a stream on the rank that works on it.
struct Block {
  std::size_t stream;
  LayerTargets layer;
  std::vector<double> covariance;
  Elimination elimination;
};

class LayerReferences {
 public:
  explicit LayerReferences(const ReferenceInput& input) : input_(input), d_(input.layout().head_size) {}

  References choose() const {
    const std::vector<LayerTargets> layers = whole_layers(input_.layout());
    const auto blocks = static_cast<std::int64_t>(layers.size() * input_.streams());
    if (input_.budget() < blocks) input_.refuse_budget(blocks);
    std::vector<Block> own;
    for (std::int64_t first = 0; first < blocks; first += input_.comm().size()) {
      const std::int64_t mine = std::min(first + input_.comm().rank(), blocks);
      for (std::size_t s = 0; s < input_.streams(); ++s) {  // each rank asks for one; all help with each
        const auto layer = mine < blocks && to_size(mine) / layers.size() == s
                               ? static_cast<std::int64_t>(to_size(mine) % layers.size())
                               : -1;
        const LayerTargets share = layer >= 0 ? layers[to_size(layer)] : LayerTargets{};
        std::vector<double> covariance = covariance_of(input_.data(s).fit, share.heads(), d_);
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

 private:
  std::vector<double> layer_metric(const Block& block) const {
    const double* first = input_.metric(block.stream, block.layer.first);
    return {first, first + (block.layer.last - block.layer.first) * d_ * d_};
  }

  /// By block: stream, then layer.
  std::vector<std::int64_t> kept_counts(const std::vector<Block>& own,
                                        const std::vector<LayerTargets>& layers) const {
    std::vector<std::vector<double>> losses;
    for (std::size_t b = 0; b < layers.size() * input_.streams(); ++b) {
      const LayerTargets& layer = layers[b % layers.size()];
      losses.emplace_back(to_size(layer.last - layer.first + 1), 0.0);
      for (const Block& block : own)
        if (block.stream == b / layers.size() && block.layer.first == layer.first)
          std::copy(block.elimination.loss.begin() + 1, block.elimination.loss.end(),
                    losses.back().begin() + 1);
      input_.comm().sum(losses.back().data(), static_cast<std::int64_t>(losses.back().size()));
    }
    return allocate_heads(losses, input_.budget());
  }

  References references_in_layers(const std::vector<Block>& own, const std::vector<LayerTargets>& layers,
                                  const std::vector<std::int64_t>& counts) const {
    const std::int64_t heads = input_.layout().heads(), streams = static_cast<std::int64_t>(input_.streams());
    std::vector<std::int64_t> table(to_size(streams * heads * input_.references()), 0);  // head + 1
    for (const Block& block : own) {
      const auto layer = std::find_if(layers.begin(), layers.end(),
                                      [&](const LayerTargets& l) { return l.first == block.layer.first; }) -
                         layers.begin();
      choose_in_layer(block, counts[block.stream * layers.size() + to_size(layer)], table);
    }
    input_.comm().sum(table.data(), static_cast<std::int64_t>(table.size()));
    References chosen(input_.streams(), std::vector<std::vector<std::int64_t>>(to_size(heads)));
    for (std::int64_t at = 0; at < streams * heads * input_.references(); ++at)
      if (table[to_size(at)] > 0)
        chosen[to_size(at / input_.references() / heads)][to_size(at / input_.references() % heads)]
            .push_back(table[to_size(at)] - 1);
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
      const MetricChoice choice = problem.choose(ascending(problem), input_.references());
      for (std::size_t i = 0; i < choice.references.size(); ++i)
        table[to_size((static_cast<std::int64_t>(block.stream) * input_.layout().heads() + block.layer.first +
                       target) *
                      input_.references()) +
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
    const auto n = static_cast<double>(input_.data(block.stream).fit.tokens);
    for (std::int64_t j = 0; j < side; ++j)
      for (std::int64_t i = 0; i < side; ++i) {
        const std::int64_t row = heads[to_size(i / d_)] * d_ + i % d_,
                           column = heads[to_size(j / d_)] * d_ + j % d_;
        moments[to_size(i + j * side)] =
            n * block.covariance[to_size(std::max(row, column) + std::min(row, column) * size)];
      }
    std::vector<std::int64_t> all;
    for (const std::int64_t head : heads) all.push_back(block.layer.first + head);
    return input_.problem(block.stream, std::move(moments), all);
  }

  const ReferenceInput& input_;
  std::int64_t d_;
};

}  // namespace

References layer_references(const ReferenceInput& input) { return LayerReferences(input).choose(); }

}  // namespace headspan
