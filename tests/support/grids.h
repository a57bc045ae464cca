// The process grids that a distributed test tries.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "dist/matrix/grid.h"

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

/// Calls `check(grid)` for every grid of all ranks. Collective over MPI_COMM_WORLD.
template <class Check>
void on_all_grids(const Check& check) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.columns) + " ranks");
    check(grid);
  }
}

}  // namespace headspan
