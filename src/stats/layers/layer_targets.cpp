#include "stats/layers/layer_targets.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace headspan {

std::vector<std::int64_t> LayerTargets::heads() const {
  std::vector<std::int64_t> heads(to_size(last - first));
  std::iota(heads.begin(), heads.end(), first);
  return heads;
}

std::vector<LayerTargets> whole_layers(const HeadLayout& layout) {
  std::vector<LayerTargets> layers;
  for (auto begin = layout.layer.begin(); begin != layout.layer.end();) {
    const auto end = std::upper_bound(begin, layout.layer.end(), *begin);
    const std::int64_t first = begin - layout.layer.begin(), last = end - layout.layer.begin();
    layers.push_back({first, last, {first, last - first}});
    begin = end;
  }
  return layers;
}

std::vector<LayerTargets> layer_targets(const HeadLayout& layout, Range range) {
  std::vector<LayerTargets> parts;
  for (LayerTargets layer : whole_layers(layout)) {
    const std::int64_t first = std::max(layer.first, range.first);
    const std::int64_t last = std::min(layer.last, range.first + range.count);
    if (first >= last) continue;
    layer.targets = {first, last - first};
    parts.push_back(layer);
  }
  return parts;
}

}  // namespace headspan
