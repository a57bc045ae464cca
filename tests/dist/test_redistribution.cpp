// copy_submatrix against the formula of the elements, on every grid: between blocks and grids, and beyond
// 2^32 elements on a rank, in memory that is hardly touched.
#include "dist/matrix/redistribution.h"
#include "support/grids.h"

namespace headspan {
namespace {

constexpr std::int64_t kLarge = 131072;  // squared, more than 2^31 elements on each of up to 6 ranks

double number(std::int64_t i, std::int64_t j) { return static_cast<double>(i * kLarge + j); }

/// Writes the elements of a submatrix that this rank owns.
void fill(Matrix& a, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  for (std::int64_t j = column; j < column + columns; ++j)
    for (std::int64_t i = row; i < row + rows; ++i)
      if (a.owner(i, j) == a.grid().comm().rank())
        *a.at(a.rows().local(i), a.columns().local(j)) = number(i, j);
}

void expect_part(const Matrix& to, std::int64_t row, std::int64_t column) {
  const Grid& grid = to.grid();
  for (std::int64_t j = 0; j < to.local_columns(); ++j)
    for (std::int64_t i = 0; i < to.local_rows(); ++i)
      ASSERT_EQ(*to.at(i, j), number(row + to.rows().global(grid.row(), i),
                                     column + to.columns().global(grid.column(), j)));
  EXPECT_TRUE(to.guards_intact());
}

TEST(Redistribution, CopiesASubmatrixToOtherBlocksAndGrids) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  on_all_grids([&](const Grid& source) {
    on_all_grids([&](const Grid& target) {
      for (const std::int64_t block : {1, 2, 3, 40}) {
        Matrix from(source, 17, 13, 3), to(target, 6, 5, block), nothing(target, 0, 5, block);
        fill(from, 0, 17, 0, 13);

        copy_submatrix(from, 4, 7, to);
        copy_submatrix(from, 17, 0, nothing);

        expect_part(to, 4, 7);
      }
    });
  });
}

TEST(Redistribution, CopiesInSeveralSlices) {
  on_all_grids([](const Grid& grid) {
    Matrix from(grid, 17000, 200, 64), to(grid, 16990, 190, 64);
    fill(from, 0, 17000, 0, 200);

    copy_submatrix(from, 3, 5, to);

    expect_part(to, 3, 5);
  });
}

TEST(Redistribution, CopiesFromTheEndOfALargeMatrix) {
  on_all_grids([](const Grid& grid) {
    for (const std::int64_t first :
         {std::int64_t{4096}, std::int64_t{16384}, std::int64_t{32800}, kLarge - 200})
      for (const std::int64_t row : {std::int64_t{64}, first}) {
        SCOPED_TRACE("from " + std::to_string(row) + ", " + std::to_string(first));
        Matrix from(grid, kLarge, kLarge, 64), to(grid, 130, 130, 64);
        fill(from, row, 130, first, 130);

        copy_submatrix(from, row, first, to);

        expect_part(to, row, first);
      }
  });
}

}  // namespace
}  // namespace headspan
