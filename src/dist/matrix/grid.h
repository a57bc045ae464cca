// Grid: a process grid of Pr x Pc ranks with its BLACS context. Rank r of the communicator is at row r / Pc,
// column r % Pc. Not a matrix. It must be destroyed before MPI is finalised.
#pragma once

#include "dist/comm/mpi.h"
#include "dist/matrix/grid_shape.h"

namespace headspan {

class Grid {
 public:
  /// Duplicates `comm` and makes the grid over all its ranks. Throws Error unless rows * columns ==
  /// comm.size(). Collective over comm.
  Grid(const Comm& comm, int rows, int columns);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  const Comm& comm() const { return comm_; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int row() const { return comm_.rank() / columns_; }     ///< of this rank
  int column() const { return comm_.rank() % columns_; }  ///< of this rank
  GridShape shape() const { return {rows_, columns_}; }
  int rank_at(int row, int column) const { return row * columns_ + column; }
  int context() const { return context_; }  ///< for ScaLAPACK descriptors

 private:
  Comm comm_;
  int rows_;
  int columns_;
  int handle_ = -1;
  int context_ = -1;
};

}  // namespace headspan
