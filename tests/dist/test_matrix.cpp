// Local shapes and descriptors against ScaLAPACK's own tools, and the guard zones.
#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dist/matrix/matrix.h"
#include "support/grids.h"

extern "C" {
int numroc_(const int* n, const int* block, const int* part, const int* first, const int* parts);
void descinit_(int* descriptor, const int* m, const int* n, const int* mb, const int* nb,
               const int* first_row, const int* first_column, const int* context, const int* leading,
               int* info);
}

namespace headspan {
namespace {

TEST(Matrix, HasTheShapeAndDescriptorOfScalapack) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (const int rows : {0, 1, 6, 7, 8, 31})
      for (const int columns : {1, 5, 40})
        for (const int block : {1, 2, 7, 40}) {
          const Matrix matrix(grid, rows, columns, block);

          const int zero = 0, row = grid.row(), column = grid.column();
          const int local = numroc_(&rows, &block, &row, &zero, &shape.rows), leading = std::max(1, local);
          ASSERT_EQ(matrix.local_rows(), local);
          ASSERT_EQ(matrix.local_columns(), numroc_(&columns, &block, &column, &zero, &shape.columns));
          ASSERT_EQ(matrix.leading(), leading);
          std::array<int, 9> expected{};
          const int context = grid.context();
          int info = 0;
          descinit_(expected.data(), &rows, &columns, &block, &block, &zero, &zero, &context, &leading,
                    &info);
          ASSERT_EQ(info, 0);
          ASSERT_EQ(matrix.descriptor(), expected);
        }
  }
}

TEST(Matrix, StartsAtZeroAndEveryElementHasOneOwner) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  Matrix matrix(grid, 11, 9, 2);
  std::int64_t owned = 0, local = 0;

  for (std::int64_t j = 0; j < 9; ++j)
    for (std::int64_t i = 0; i < 11; ++i)
      if (matrix.owner(i, j) == world.rank()) {
        ++owned;
        EXPECT_EQ(*matrix.at(matrix.rows().local(i), matrix.columns().local(j)), 0);
      }

  local = matrix.local_rows() * matrix.local_columns();
  EXPECT_EQ(owned, local);
  world.sum(&owned, 1);
  EXPECT_EQ(owned, 11 * 9);
}

TEST(Matrix, NoticesAWriteBesideItsArray) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Grid grid(world, 1, world.size());
  Matrix matrix(grid, 5, 12, 2);
  const std::int64_t elements = matrix.leading() * matrix.local_columns();
  std::fill_n(matrix.data(), elements, -1.0);
  EXPECT_TRUE(matrix.guards_intact());

  for (const std::int64_t outside : {std::int64_t{-64}, std::int64_t{-1}, elements, elements + 63}) {
    const double before = std::exchange(matrix.data()[outside], 0.0);
    EXPECT_FALSE(matrix.guards_intact()) << "at " << outside;
    matrix.data()[outside] = before;
  }

  EXPECT_TRUE(matrix.guards_intact());
}

TEST(Matrix, IsAlignedAndZeroWhenLarge) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Grid grid(world, 1, world.size());

  const Matrix matrix(grid, 1200, 1200, 100);

  const double* end = matrix.data() + matrix.leading() * matrix.local_columns();
  EXPECT_TRUE(std::all_of(matrix.data(), end, [](double x) { return x == 0; }));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.data()) % 64, 0U);
}

TEST(Matrix, RefusesSizesThatOverflow) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Grid grid(world, 1, world.size());

  EXPECT_THROW(Matrix(grid, std::int64_t{1} << 40, std::int64_t{1} << 40, 64), Error);
}

/// Returns the bytes of the local array that are in memory.
std::int64_t resident_bytes(Matrix& matrix) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(matrix.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(matrix.at(0, matrix.local_columns()));
  std::vector<unsigned char> pages((end - begin + page - 1) / page);
  if (mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return -1;
  const auto resident = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  return static_cast<std::int64_t>(page) * resident;
}

TEST(Matrix, AllocatesTheTriangleThatIsWritten) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Grid grid(world, 1, world.size());
  constexpr std::int64_t kSize = 3000, kBytes = kSize * 8;
  Matrix matrix(grid, kSize, kSize, 100);
  EXPECT_LE(resident_bytes(matrix), 3 * 4096);  // the guards'
  std::int64_t written = 0;
  for (std::int64_t j = 0; j < matrix.local_columns(); ++j) {
    const std::int64_t first = matrix.columns().global(grid.column(), j);
    std::fill_n(matrix.at(first, j), kSize - first, 1.0);
    written += (kSize - first) * 8;
  }
  EXPECT_GE(resident_bytes(matrix), written);
  EXPECT_LE(resident_bytes(matrix), written + 4096 * (matrix.local_columns() + 1));  // a page of each column
  EXPECT_LT(resident_bytes(matrix), 3 * kBytes * matrix.local_columns() / 4);
  EXPECT_EQ(*matrix.at(0, matrix.local_columns() - 1), 0);
}

}  // namespace
}  // namespace headspan
