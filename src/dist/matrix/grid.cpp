#include "dist/matrix/grid.h"

#include <vector>

#include "dist/matrix/scalapack.h"

namespace headspan {

Grid::Grid(const Comm& comm, int rows, int columns)
    : comm_(Comm::duplicate(comm.get())), rows_(rows), columns_(columns) {
  if (rows < 1 || columns < 1 || rows * columns != comm.size())
    throw Error("a grid of " + std::to_string(rows) + "x" + std::to_string(columns) + " does not hold " +
                std::to_string(comm.size()) + " ranks");
  handle_ = Csys2blacs_handle(comm_.get());
  context_ = handle_;
  std::vector<int> map;  // column-major, ranks of the handle's communicator
  for (int q = 0; q < columns; ++q)
    for (int p = 0; p < rows; ++p) map.push_back(rank_at(p, q));
  Cblacs_gridmap(&context_, map.data(), rows, rows, columns);
  int got_rows = 0, got_columns = 0, got_row = 0, got_column = 0;
  Cblacs_gridinfo(context_, &got_rows, &got_columns, &got_row, &got_column);
  if (got_rows != rows || got_columns != columns || got_row != row() || got_column != column())
    throw Error("BLACS placed this rank at (" + std::to_string(got_row) + ", " + std::to_string(got_column) +
                "), MPI at (" + std::to_string(row()) + ", " + std::to_string(column()) + ")");
}

Grid::~Grid() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0 || handle_ < 0) return;
  Cblacs_gridexit(context_);
  Cfree_blacs_system_handle(handle_);
}

}  // namespace headspan
