// Which heads of which layers a rank works on, where work is dealt out by target and needs the whole layer's
// tiles.
#pragma once

#include <vector>

#include "base/range.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Heads first .. last of one layer, of which `targets` are this rank's.
struct LayerTargets {
  std::int64_t first = 0;
  std::int64_t last = 0;  ///< exclusive
  Range targets;

  std::vector<std::int64_t> heads() const;
};

/// The layers as ranges of heads, in order; `targets` is the whole layer.
std::vector<LayerTargets> whole_layers(const HeadLayout& layout);

/// The part of each layer that lies in `slab`, layers without any left out.
std::vector<LayerTargets> layer_targets(const HeadLayout& layout, Range slab);

}  // namespace headspan
