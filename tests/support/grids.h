// The process grids that a distributed test tries.
#pragma once

#include <vector>

#include "base/checked.h"
#include "dist/grid_shape.h"

namespace headspan {

struct ProcessGrid {
  int rows;
  int columns;
};

/// All rows x columns = ranks.
inline std::vector<ProcessGrid> all_grids(int ranks) {
  std::vector<ProcessGrid> grids;
  for (int rows = 1; rows <= ranks; ++rows)
    if (ranks % rows == 0) grids.push_back({rows, ranks / rows});
  return grids;
}

/// The one that the program chooses.
inline ProcessGrid usual_grid(int ranks) {
  const GridShape shape = squarest_grid(ranks);
  return {to_int(shape.rows), to_int(shape.columns)};
}

}  // namespace headspan
