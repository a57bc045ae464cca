// The operands of each rank against those that its block rows and columns need, on every grid and with uneven
// tokens.
#include <algorithm>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "dist/matrix/panel_exchange.h"
#include "support/grids.h"

namespace {

/// Replaces MPI's functions in the calls below while it is set.
using Send = std::function<int(int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm, MPI_Request*)>;
Send replaced_send, replaced_receive;

}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (replaced_send) return replaced_send(count, type, rank, tag, comm, request);
  return PMPI_Isend(data, count, type, rank, tag, comm, request);
}

extern "C" int MPI_Irecv(void* data, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (replaced_receive) return replaced_receive(count, type, rank, tag, comm, request);
  return PMPI_Irecv(data, count, type, rank, tag, comm, request);
}

namespace headspan {
namespace {

/// Returns a value that is unique to panel, rank, token and column.
template <class T>
T value_of(int panel, int rank, std::int64_t token, std::int64_t column) {
  return static_cast<T>(panel * 100000 + rank * 10000) + static_cast<T>(token * 100 + column);
}

/// Returns a rank's number of tokens in a panel: 0 for some, and for all ranks in panel 2.
std::int64_t tokens_of(int panel, int rank) { return panel == 2 ? 0 : (panel + 2 * rank) % 4; }

/// offset(l): the offset of local row or column l.
template <class T, class Offset>
void expect_operand(const T* values, std::int64_t leading, const Offset& offset, const BlockCyclic& axis,
                    int part, int panel, int ranks, const char* which) {
  const std::int64_t local = axis.local_size(part);
  std::int64_t position = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (std::int64_t token = 0; token < tokens_of(panel, rank); ++token, ++position)
      for (std::int64_t l = 0; l < local; ++l)
        ASSERT_EQ(values[offset(l) + position * leading],
                  value_of<T>(panel, rank, token, axis.global(part, l)))
            << which << ", panel " << panel << ", rank " << rank << ", token " << token << ", local " << l;
}

/// Returns what it sends, which a single rank reads in place.
template <class T>
std::vector<T> start(PanelExchange<T>& exchange, const Matrix& shape, int panel, int rank) {
  std::vector<T> z;
  for (std::int64_t token = 0; token < tokens_of(panel, rank); ++token)
    for (std::int64_t j = 0; j < shape.columns().size; ++j) z.push_back(value_of<T>(panel, rank, token, j));
  exchange.start(shape, z.data(), tokens_of(panel, rank));
  if (shape.grid().comm().size() > 1) std::fill(z.begin(), z.end(), T(-1));  // it may change
  return z;
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
    const std::vector<T> z = start(exchange, *shapes[panel % 2], panel, rank);
    exchange.progress();
    operands[panel] = exchange.finish();

    // On several ranks the previous panel is still valid: until the second start after its own.
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
          [&](std::int64_t l) { return operands[p].offset(l); }, columns, grid.column(), p, ranks, "columns");
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

TEST(PanelExchange, MayBeDestroyedAfterAFailedCall) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int last = world.size() - 1;
  if (last == 0) GTEST_SKIP() << "one rank sends nothing";
  const Grid grid(world, 1, world.size());
  const Matrix matrix(grid, 13, 13, 2);
  std::function<void()> send_late = [] {};
  if (world.is_root())  // its last message fails
    replaced_send = [&](int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                        MPI_Request* request) {
      if (rank == last) {
        send_late = [=] {
          int bytes = 0;
          MPI_Type_size(type, &bytes);
          const std::vector<char> anything(static_cast<std::size_t>(count) * static_cast<std::size_t>(bytes));
          MPI_Send(anything.data(), count, type, rank, tag, comm);
        };
        return MPI_ERR_OTHER;
      }
      static const char nothing[1 << 16] = {};
      return PMPI_Isend(nothing, count, type, rank, tag, comm, request);
    };
  {
    PanelExchange<double> exchange(grid);
    if (world.is_root()) {
      EXPECT_THROW(start(exchange, matrix, 3, world.rank()), Error);
    } else {
      start(exchange, matrix, 3, world.rank());
    }
    replaced_send = nullptr;
    send_late();
  }

  expect_panels<double>(matrix, matrix);
}

TEST(PanelExchange, SendsAGibibyteAtATime) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  if (world.size() != 2) GTEST_SKIP() << "needs two ranks";
  static constexpr std::int64_t kTokens = 270'000, kColumns = 520, kMost = std::int64_t{1} << 30;
  const Grid grid(world, 1, 2);
  const Matrix matrix(grid, kColumns, kColumns, kColumns);
  std::int64_t sent = 0, received = 0;
  const auto count_in = [](std::int64_t& all) {
    return [&all](int count, MPI_Datatype type, int, int, MPI_Comm, MPI_Request* request) {
      int bytes = 0;
      MPI_Type_size(type, &bytes);
      EXPECT_LE(std::int64_t{count} * bytes, kMost);
      all += std::int64_t{count} * bytes;
      *request = MPI_REQUEST_NULL;
      return MPI_SUCCESS;
    };
  };
  PanelExchange<double> exchange(grid);
  LargeArray<double> z;  // pages of zeros that do not exist
  z.reserve(kTokens * kColumns);
  replaced_send = count_in(sent);
  replaced_receive = count_in(received);

  exchange.start(matrix, z.data(), kTokens);
  exchange.finish();

  replaced_send = replaced_receive = nullptr;
  EXPECT_EQ(sent, kTokens * kColumns * 8);
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace headspan
