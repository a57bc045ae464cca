// What a rank is brought against what its block rows and columns say, on every grid and with uneven tokens.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "dist/panel_exchange.h"
#include "support/grids.h"

namespace headspan {
namespace {

/// A value that tells panel, rank, token and column.
template <class T>
T value_of(int panel, int rank, std::int64_t token, std::int64_t column) {
  return static_cast<T>(panel * 100000 + rank * 10000) + static_cast<T>(token * 100 + column);
}

/// Tokens that a rank brings to a panel: none in places, everywhere none in panel 2.
std::int64_t tokens_of(int panel, int rank) { return panel == 2 ? 0 : (panel + 2 * rank) % 4; }

/// place(l): where local row or column l lies.
template <class T, class Place>
void expect_operand(const T* values, std::int64_t leading, const Place& place, const BlockCyclic& axis,
                    int part, int panel, int ranks, const char* which) {
  const std::int64_t local = axis.local_size(part);
  std::int64_t position = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (std::int64_t token = 0; token < tokens_of(panel, rank); ++token, ++position)
      for (std::int64_t l = 0; l < local; ++l)
        ASSERT_EQ(values[place(l) + position * leading],
                  value_of<T>(panel, rank, token, axis.global(part, l)))
            << which << ", panel " << panel << ", rank " << rank << ", token " << token << ", local " << l;
}

template <class T>
void start(PanelExchange<T>& exchange, const Matrix& shape, int panel, int rank) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(shape.columns().size), 0);  // tokens of each column
  const auto fill_again = [&](std::int64_t token, std::int64_t first, std::int64_t count, T* out) {
    for (std::int64_t j = 0; j < count; ++j) out[j] = value_of<T>(panel, rank, token, first + j);
  };
  exchange.start(
      shape, tokens_of(panel, rank),
      [&](std::int64_t token, std::int64_t first, std::int64_t count, T* out) {
        fill_again(token, first, count, out);
        for (std::int64_t j = 0; j < count; ++j)
          EXPECT_EQ(token, seen[static_cast<std::size_t>(first + j)]++);
      },
      fill_again);
  for (const std::int64_t tokens : seen) EXPECT_EQ(tokens, tokens_of(panel, rank));
}

/// Panels for two matrices in turn.
template <class T>
void expect_panels(const Matrix& even, const Matrix& odd) {
  const Grid& grid = even.grid();
  const int rank = grid.comm().rank(), ranks = grid.comm().size();
  const Matrix* shapes[] = {&even, &odd};
  PanelExchange<T> exchange(grid);
  PanelOperands<T> operands[6];
  for (int panel = 0; panel < 6; ++panel) {
    start(exchange, *shapes[panel % 2], panel, rank);
    exchange.progress();
    operands[panel] = exchange.finish();

    // On several ranks the one before is still to be read: it lives until the second start from its own.
    for (int p = ranks == 1 ? panel : std::max(0, panel - 1); p <= panel; ++p) {
      std::int64_t tokens = 0;
      for (int r = 0; r < ranks; ++r) tokens += tokens_of(p, r);
      ASSERT_EQ(operands[p].tokens, tokens);
      const auto neighbours = [](std::int64_t l) { return l; };
      const BlockCyclic &rows = shapes[p % 2]->rows(), &columns = shapes[p % 2]->columns();
      expect_operand(operands[p].rows, operands[p].leading_rows, neighbours, rows, grid.row(), p, ranks,
                     "rows");
      expect_operand(
          operands[p].columns, operands[p].leading_columns,
          [&](std::int64_t l) { return operands[p].place(l); }, columns, grid.column(), p, ranks, "columns");
      LargeArray<T> memory;
      const PanelOperands<T> whole =
          with_neighbouring_columns(operands[p], columns.local_size(grid.column()), memory);
      expect_operand(whole.columns, whole.leading_columns, neighbours, columns, grid.column(), p, ranks,
                     "neighbouring columns");
    }
  }
}

TEST(PanelExchange, BringsTheColumnsOfBlockRowsAndBlockColumns) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (const std::int64_t block : {1, 2, 5, 13}) {  // 13: one block, so that most ranks own nothing
      const Matrix matrix(grid, 13, 13, block);
      const Matrix other(grid, 8, 8, 4);
      expect_panels<double>(matrix, other);
      expect_panels<float>(matrix, other);
    }
  }
}

TEST(PanelExchange, MayBeDestroyedUnderWay) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Grid grid(world, 1, world.size());
  const Matrix matrix(grid, 13, 13, 2);
  {
    PanelExchange<double> exchange(grid);
    start(exchange, matrix, 3, world.rank());
  }

  expect_panels<double>(matrix, matrix);  // nothing of the first is left on its way
}

}  // namespace
}  // namespace headspan
