#include <gtest/gtest.h>

#include "dist/matrix/grid.h"
#include "dist/matrix/grid_shape.h"
#include "dist/matrix/scalapack.h"
#include "support/grids.h"

namespace headspan {
namespace {

TEST(Grid, PlacesRanksRowByRowAsBlacsDoes) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);

    int rows = 0, columns = 0, row = 0, column = 0;
    Cblacs_gridinfo(grid.context(), &rows, &columns, &row, &column);

    EXPECT_EQ(rows, shape.rows);
    EXPECT_EQ(columns, shape.columns);
    EXPECT_EQ(row, world.rank() / shape.columns);
    EXPECT_EQ(column, world.rank() % shape.columns);
    EXPECT_EQ(grid.rank_at(grid.row(), grid.column()), world.rank());
  }
}

TEST(Grid, CanConsistOfSomeOfTheRanks) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Comm half = world.split(world.rank() % 2, -world.rank());  // ranks in falling order

  const Grid grid(half, 1, half.size());

  EXPECT_EQ(grid.column(), half.rank());
  EXPECT_EQ(grid.comm().size(), half.size());
}

TEST(Grid, RefusesAShapeThatDoesNotHoldTheRanks) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);

  EXPECT_THROW(Grid(world, world.size(), 2), Error);
  EXPECT_THROW(Grid(world, 0, world.size()), Error);
  EXPECT_THROW(Grid(world, -1, -world.size()), Error);
}

TEST(Grid, MayBeMadeManyTimes) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);

  for (int i = 0; i < 100; ++i) EXPECT_EQ(Grid(world, 1, world.size()).column(), world.rank());
}

TEST(Grid, FindsTheSquarestShape) {
  const auto is = [](const GridShape& shape, int rows, int columns) {
    return shape.rows == rows && shape.columns == columns;
  };
  EXPECT_TRUE(is(squarest_grid(1), 1, 1));
  EXPECT_TRUE(is(squarest_grid(6), 2, 3));
  EXPECT_TRUE(is(squarest_grid(7), 1, 7));
  EXPECT_TRUE(is(squarest_grid(64), 8, 8));
  EXPECT_TRUE(is(squarest_grid(96), 8, 12));
}

}  // namespace
}  // namespace headspan
