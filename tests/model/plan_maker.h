// Compression plans for tests of caches: whatever a cache is given, its attention must agree with what the
// plan says.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/outputs/compression_plan.h"
#include "model/core/model_config.h"

namespace headspan {

/// Lets the bands of a record share a gain.
inline std::vector<Band> with_gain(std::vector<Band> bands) {
  for (std::size_t b = 0; b < bands.size(); ++b) {
    bands[b].coding = Coding::gain;
    bands[b].follows = b > 0;
  }
  return bands;
}

/// Values of a plan that mean nothing but are of the right form.
class PlanMaker {
 public:
  PlanMaker(const ModelConfig& config, const std::string& algorithm) {
    plan_.algorithm = *value_of(algorithm_words(), algorithm);
    plan_.layers = config.layers;
    plan_.kv_heads = config.kv_heads;
    plan_.head_size = config.head_size;
    plan_.references = 2;
  }

  CompressionPlan make(const std::vector<Band>& bands, std::int64_t exact_first) {
    return make(bands, bands, exact_first);
  }

  CompressionPlan make(const std::vector<Band>& keys, const std::vector<Band>& values,
                       std::int64_t exact_first) {
    plan_.exact_first = exact_first;
    for (const auto& [stream, bands] : {std::pair{Stream::k, keys}, std::pair{Stream::v, values}})
      for (std::int64_t layer = 0; layer < plan_.layers; ++layer)
        plan_.streams[stream].push_back(plan_.algorithm == CompressionAlgorithm::headspan ? heads(layer)
                                                                                          : columns(bands));
    return plan_;
  }

 private:
  template <class T>
  std::vector<T> draw(std::int64_t count) {
    std::normal_distribution<double> normal(0, 0.3);
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(normal(engine_));
    return values;
  }

  PlannedBlock columns(const std::vector<Band>& bands) {
    PlannedBlock block;
    block.bands = bands;
    if (plan_.algorithm == CompressionAlgorithm::oscar)
      block.rotation = draw<float>(plan_.columns() * plan_.head_size);
    if (rounds_columns(plan_.algorithm)) return block;
    std::int64_t r = 0;
    for (const Band& band : bands) r += band.columns;
    block.mean = block.bias = draw<double>(plan_.columns());
    block.projection = draw<float>(plan_.columns() * r);
    block.reconstruction = draw<float>(r * plan_.columns());
    for (std::int64_t column = 0; column < r && bands.front().coding == Coding::gain; ++column)
      block.weights.push_back(1 / static_cast<float>(column + 1));
    return block;
  }

  /// The last head of each layer is kept, and the first where there are more than two; the others refer to
  /// the last of their layer and to the first kept head of layer 0.
  PlannedBlock heads(std::int64_t layer) {
    const std::int64_t last = plan_.kv_heads - 1, first = last > 1 ? 0 : last, d = plan_.head_size;
    PlannedBlock block;
    block.kept = first == last ? std::vector<std::int64_t>{last} : std::vector<std::int64_t>{first, last};
    block.bands = {{static_cast<std::int64_t>(block.kept.size()) * d}};
    for (std::int64_t head = 0; head < last; ++head) {
      if (head == first) continue;
      block.targets.push_back(head);
      block.references.push_back(layer * plan_.kv_heads + last);
      block.references.push_back(layer == 0 && first == last ? -1 : first);
    }
    const auto targets = static_cast<std::int64_t>(block.targets.size());
    block.map = draw<float>(targets * 2 * d * d);
    block.bias = draw<double>(targets * d);
    return block;
  }

  CompressionPlan plan_;
  std::mt19937 engine_{7};
};

}  // namespace headspan
