// Tiles that are fetched and stored, against an element function, on every grid and with blocks of several
// tiles.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "base/splitmix64.h"
#include "dist/matrix/tile_exchange.h"
#include "support/grids.h"

namespace headspan {
namespace {

double element(std::int64_t i, std::int64_t j) {
  return 1000.0 * static_cast<double>(i) + static_cast<double>(j);
}

/// Makes a matrix with the values of `element` in the lower triangle of tiles, and NaN elsewhere.
void fill(Matrix& matrix, std::int64_t tile) {
  const Grid& grid = matrix.grid();
  for (std::int64_t l = 0; l < matrix.local_columns(); ++l)
    for (std::int64_t k = 0; k < matrix.local_rows(); ++k) {
      const std::int64_t i = matrix.rows().global(grid.row(), k),
                         j = matrix.columns().global(grid.column(), l);
      *matrix.at(k, l) = i / tile >= j / tile ? element(i, j) : std::nan("");
    }
}

/// Returns a few tiles of the lower triangle, unordered and with repeats; none on every third rank.
std::vector<Tile> wanted_tiles(std::int64_t tiles, int rank) {
  std::vector<Tile> wanted;
  SplitMix64 random(static_cast<std::uint64_t>(rank));
  if (rank % 3 == 2) return wanted;
  for (int k = 0; k < 20; ++k) {
    const auto a = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(tiles));
    const auto b = static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(tiles));
    wanted.push_back({std::max(a, b), std::min(a, b)});
  }
  return wanted;
}

template <class Check>
void on_every_layout(const Check& check) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  constexpr std::int64_t kTiles = 7;
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (const std::int64_t size : {1, 3})
      for (const std::int64_t tiles_in_block : {1, 2, 3, 7}) {
        Matrix matrix(grid, kTiles * size, kTiles * size, tiles_in_block * size);
        check(matrix, size, kTiles);
      }
  }
}

TEST(TileExchange, FetchesTilesInTheOrderAskedFor) {
  on_every_layout([](Matrix& matrix, std::int64_t size, std::int64_t tiles) {
    fill(matrix, size);
    const std::vector<Tile> wanted = wanted_tiles(tiles, matrix.grid().comm().rank());

    const std::vector<double> values = fetch_tiles(matrix, size, wanted);

    ASSERT_EQ(values.size(), wanted.size() * static_cast<std::size_t>(size * size));
    const double* value = values.data();
    for (const Tile& tile : wanted)
      for (std::int64_t j = 0; j < size; ++j)
        for (std::int64_t i = 0; i < size; ++i)
          ASSERT_EQ(*value++, element(tile.row * size + i, tile.column * size + j));
    ASSERT_TRUE(matrix.guards_intact());
  });
}

TEST(TileExchange, FindsTheLocalTilesThatAreRequested) {
  on_every_layout([](Matrix& matrix, std::int64_t size, std::int64_t tiles) {
    const Comm& comm = matrix.grid().comm();
    std::set<std::pair<std::int64_t, std::int64_t>> expected, found;
    for (int rank = 0; rank < comm.size(); ++rank)
      for (const Tile& tile : wanted_tiles(tiles, rank))
        if (matrix.owner(tile.row * size, tile.column * size) == comm.rank())
          expected.insert({tile.row, tile.column});
    const std::vector<Tile> told = requested_local_tiles(matrix, size, wanted_tiles(tiles, comm.rank()));
    for (const Tile& tile : told) found.insert({tile.row, tile.column});
    EXPECT_EQ(found, expected);
    EXPECT_EQ(told.size(), expected.size());
  });
}

TEST(TileExchange, StoresTilesAtTheirOwners) {
  on_every_layout([](Matrix& matrix, std::int64_t size, std::int64_t tiles) {
    const Comm& comm = matrix.grid().comm();
    std::vector<Tile> mine;
    std::vector<double> values;
    for (std::int64_t row = 0; row < tiles; ++row)
      for (std::int64_t column = 0; column <= row; ++column) {
        if ((row * 5 + column) % comm.size() != comm.rank()) continue;
        mine.push_back({row, column});
        for (std::int64_t j = 0; j < size; ++j)
          for (std::int64_t i = 0; i < size; ++i)
            values.push_back(element(row * size + i, column * size + j));
      }

    store_tiles(matrix, size, mine, values.data());

    const Grid& grid = matrix.grid();
    for (std::int64_t l = 0; l < matrix.local_columns(); ++l)
      for (std::int64_t k = 0; k < matrix.local_rows(); ++k) {
        const std::int64_t i = matrix.rows().global(grid.row(), k),
                           j = matrix.columns().global(grid.column(), l);
        ASSERT_EQ(*matrix.at(k, l), i / size >= j / size ? element(i, j) : 0);
      }
    ASSERT_TRUE(matrix.guards_intact());
  });
}

}  // namespace
}  // namespace headspan
