#include "dist/matrix/redistribution.h"

#include <algorithm>
#include <vector>

namespace headspan {
namespace {

// The most elements that a rank sends at a time.
constexpr std::int64_t kSliceElements = std::int64_t{1} << 20;

/// Consecutive elements along one axis that one process sends to one other.
struct Run {
  std::int64_t count;
  int sender, receiver;   // processes along the axis
  std::int64_t from, to;  // local indices of the first element
};

/// Returns the runs of `count` elements, in order, which begin at `first_from` in one distribution and at
/// `first_to` in the other.
std::vector<Run> runs_of(const BlockCyclic& from, std::int64_t first_from, const BlockCyclic& to,
                         std::int64_t first_to, std::int64_t count) {
  std::vector<Run> runs;
  for (std::int64_t done = 0; done < count; done += runs.back().count) {
    const std::int64_t i = first_from + done, j = first_to + done;
    runs.push_back({std::min({count - done, from.block - i % from.block, to.block - j % to.block}),
                    from.owner(i), to.owner(j), from.local(i), to.local(j)});
  }
  return runs;
}

std::vector<Run> runs_between(const std::vector<Run>& runs, int sender, int receiver) {
  std::vector<Run> selected;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(selected),
               [&](const Run& run) { return run.sender == sender && run.receiver == receiver; });
  return selected;
}

/// Calls `visit(row_run, column_run, k)` for the k-th column of each run of columns and each run of rows, in
/// the same order on the rank that sends and on the one that receives.
template <class Visit>
void for_each_column(const std::vector<Run>& rows, const std::vector<Run>& columns, const Visit& visit) {
  for (const Run& column : columns)
    for (std::int64_t k = 0; k < column.count; ++k)
      for (const Run& row : rows) visit(row, column, k);
}

/// Fills columns first .. first + count - 1 of `to`.
void copy_columns(const Matrix& from, std::int64_t row, std::int64_t column, Matrix& to, std::int64_t first,
                  std::int64_t count) {
  const Grid &source = from.grid(), &target = to.grid();
  const std::vector<Run> rows = runs_of(from.rows(), row, to.rows(), 0, to.rows().size);
  const std::vector<Run> columns = runs_of(from.columns(), column + first, to.columns(), first, count);
  std::vector<std::vector<double>> send(static_cast<std::size_t>(target.comm().size()));
  for (int rank = 0; rank < target.comm().size(); ++rank) {
    std::vector<double>& out = send[static_cast<std::size_t>(rank)];
    for_each_column(runs_between(rows, source.row(), rank / target.columns()),
                    runs_between(columns, source.column(), rank % target.columns()),
                    [&](const Run& i, const Run& j, std::int64_t k) {
                      const double* in = from.at(i.from, j.from + k);
                      out.insert(out.end(), in, in + i.count);
                    });
  }
  const std::vector<std::vector<double>> received = target.comm().exchange(send);
  for (int rank = 0; rank < source.comm().size(); ++rank) {
    const double* in = received[static_cast<std::size_t>(rank)].data();
    for_each_column(runs_between(rows, rank / source.columns(), target.row()),
                    runs_between(columns, rank % source.columns(), target.column()),
                    [&](const Run& i, const Run& j, std::int64_t k) {
                      std::copy_n(in, i.count, to.at(i.to, j.to + k));
                      in += i.count;
                    });
  }
}

}  // namespace

void copy_submatrix(const Matrix& from, std::int64_t row, std::int64_t column, Matrix& to) {
  const std::int64_t rows = to.rows().size, columns = to.columns().size;
  HS_ASSERT(to.grid().comm().size() == from.grid().comm().size() && row + rows <= from.rows().size &&
            column + columns <= from.columns().size);
  const std::int64_t ranks_per_column = std::min(from.grid().rows(), to.grid().rows());  // at least this many
  const std::int64_t step =
      std::max<std::int64_t>(1, kSliceElements * ranks_per_column / std::max<std::int64_t>(1, rows));
  for (std::int64_t first = 0; first < columns; first += step)
    copy_columns(from, row, column, to, first, std::min(step, columns - first));
}

}  // namespace headspan
