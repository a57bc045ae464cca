// SharedCounter: hands out each unit of a study to one group of ranks. If MPI offers one-sided communication
// between all ranks, a group that is free draws the next number, and waits for no group that is computing.
// Otherwise (Debian's Open MPI between nodes over TCP) group g of G draws g, g + G, g + 2 G, ...
#pragma once

#include "dist/comm/mpi.h"

namespace headspan {

class SharedCounter {
 public:
  /// Starts at 0. This rank belongs to group `group` of `groups`. Collective over comm.
  SharedCounter(const Comm& comm, int group, int groups);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  /// Returns the next number. Called by one rank of each group.
  std::int64_t next();
  /// Returns whether numbers go to whichever group asks first.
  bool is_shared() const { return window_ != MPI_WIN_NULL; }
  /// Ends the counter. Collective over comm.
  void close();

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::int64_t next_;
  int step_;
};

}  // namespace headspan
