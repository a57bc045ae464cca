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

std::vector<std::int64_t> indices(std::int64_t count) {
  std::vector<std::int64_t> list(to_size(count));
  std::iota(list.begin(), list.end(), std::int64_t{0});
  return list;
}

/// Returns the candidates of a problem in ascending order of the loss that each one leaves when used alone.
std::vector<std::int64_t> ascending(const MetricProblem& problem) {
  std::vector<double> loss;
  for (std::int64_t c = 0; c < problem.candidates(); ++c) loss.push_back(problem.loss_of(c));
  std::vector<std::int64_t> order = indices(problem.candidates());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return loss[to_size(a)] < loss[to_size(b)]; });
  return order;
}

/// A layer of a stream, on the rank that works on it. Blocks are numbered by stream, then layer.
struct Block {
  std::size_t number;
  std::vector<double> covariance;
  Elimination elimination;
};

class LayerReferences {
 public:
  explicit LayerReferences(const ReferenceInput& input)
      : input_(input), d_(input.layout().head_size), layers_(whole_layers(input.layout())) {}

  References choose() {
    const std::size_t blocks = layers_.size() * input_.streams();
    if (input_.budget() < static_cast<std::int64_t>(blocks))
      input_.refuse_budget(static_cast<std::int64_t>(blocks));
    for (std::size_t first = 0; first < blocks; first += to_size(input_.comm().size())) eliminate(first);
    const std::vector<std::int64_t> counts = kept_counts();
    const std::int64_t heads = input_.layout().heads();
    References chosen(input_.streams());
    for (std::size_t s = 0; s < chosen.size(); ++s) {
      chosen[s].resize(to_size(heads));
      for (const Block& block : blocks_)
        if (stream_of(block.number) == s) choose_in_layer(block, counts[block.number], chosen[s]);
      share_lists(input_.comm(), chosen[s]);
    }
    return chosen;
  }

 private:
  std::size_t stream_of(std::size_t number) const { return number / layers_.size(); }
  const LayerTargets& layer_of(std::size_t number) const { return layers_[number % layers_.size()]; }
  std::int64_t heads_of(std::size_t number) const { return layer_of(number).last - layer_of(number).first; }

  /// Eliminates the heads of this rank's block in the round of blocks that starts with `first`. Collective.
  void eliminate(std::size_t first) {
    const std::size_t number = first + to_size(input_.comm().rank());
    const bool has_block = number < layers_.size() * input_.streams();
    Block block{number, {}, {}};
    for (std::size_t s = 0; s < input_.streams(); ++s) {
      const bool in_stream = has_block && stream_of(number) == s;
      const std::vector<std::int64_t> heads =
          in_stream ? layer_of(number).heads() : std::vector<std::int64_t>();
      std::vector<double> covariance = covariance_of(input_.data(s).fit, heads, d_);
      if (in_stream) block.covariance = std::move(covariance);
    }
    if (!has_block) return;
    const std::int64_t n = heads_of(number);
    const double* metric = input_.metric(stream_of(number), layer_of(number).first);
    block.elimination = eliminate_heads(block.covariance, {metric, metric + n * d_ * d_}, n, d_);
    blocks_.push_back(std::move(block));
  }

  /// Returns how many heads each block keeps. Collective.
  std::vector<std::int64_t> kept_counts() const {
    std::vector<std::vector<double>> losses;
    for (std::size_t number = 0; number < layers_.size() * input_.streams(); ++number) {
      losses.emplace_back(to_size(heads_of(number) + 1), 0.0);
      for (const Block& block : blocks_)
        if (block.number == number)
          std::copy(block.elimination.loss.begin() + 1, block.elimination.loss.end(),
                    losses.back().begin() + 1);
      input_.comm().sum(losses.back().data(), static_cast<std::int64_t>(losses.back().size()));
    }
    return allocate_heads(losses, input_.budget());
  }

  /// Chooses the references of the heads that a block drops when it keeps `count`. references: by head of the
  /// stream.
  void choose_in_layer(const Block& block, std::int64_t count,
                       std::vector<std::vector<std::int64_t>>& references) const {
    const std::int64_t first = layer_of(block.number).first, heads = heads_of(block.number);
    std::vector<std::int64_t> kept = indices(heads);
    const auto& dropped = block.elimination.dropped;
    for (std::int64_t k = 0; k < heads - count; ++k)
      kept.erase(std::find(kept.begin(), kept.end(), dropped[to_size(k)]));
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t k = 0; k < heads - count; ++k) {
      const std::int64_t target = dropped[to_size(k)];
      std::vector<std::int64_t> candidates(kept);
      candidates.push_back(target);
      const MetricProblem problem = problem_of(block, candidates);
      for (const std::int64_t c : problem.choose(ascending(problem), input_.references()).references)
        references[to_size(first + target)].push_back(first + kept[to_size(c)]);
    }
  }

  /// Returns the problem of predicting the last of `heads`, which are numbered within the block's layer.
  MetricProblem problem_of(const Block& block, const std::vector<std::int64_t>& heads) const {
    const std::size_t stream = stream_of(block.number);
    const std::int64_t size = heads_of(block.number) * d_,
                       side = static_cast<std::int64_t>(heads.size()) * d_;
    std::vector<double> moments(to_size(side * side));
    const auto n = static_cast<double>(input_.data(stream).fit.tokens);
    for (std::int64_t j = 0; j < side; ++j)
      for (std::int64_t i = 0; i < side; ++i) {
        const std::int64_t row = heads[to_size(i / d_)] * d_ + i % d_,
                           column = heads[to_size(j / d_)] * d_ + j % d_;
        moments[to_size(i + j * side)] =
            n * block.covariance[to_size(std::max(row, column) + std::min(row, column) * size)];
      }
    std::vector<std::int64_t> stream_heads;
    stream_heads.reserve(heads.size());
    for (const std::int64_t head : heads) stream_heads.push_back(layer_of(block.number).first + head);
    return input_.problem(stream, std::move(moments), stream_heads);
  }

  const ReferenceInput& input_;
  std::int64_t d_;
  std::vector<LayerTargets> layers_;
  std::vector<Block> blocks_;  // of this rank
};

}  // namespace

References layer_references(const ReferenceInput& input) { return LayerReferences(input).choose(); }

}  // namespace headspan
