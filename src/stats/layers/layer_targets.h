// Which heads of which layers a rank works on, if work is divided by target and needs the tiles of the whole
// layer. Local.
#pragma once

#include <vector>

#include "base/range.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The heads of one layer and those of them that are this rank's targets.
struct LayerTargets {
  std::int64_t first = 0;
  std::int64_t last = 0;  ///< exclusive
  Range targets;

  std::vector<std::int64_t> heads() const;
};

/// Returns the layers in order, with all of their heads as targets.
std::vector<LayerTargets> whole_layers(const HeadLayout& layout);

/// Returns the layers that have heads in `range`, with these as targets.
std::vector<LayerTargets> layer_targets(const HeadLayout& layout, Range range);

}  // namespace headspan
