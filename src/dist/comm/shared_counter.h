// A counter that the groups of a sweep draw unit numbers from, each number once. Where MPI has one-sided
// communication between all ranks, a group draws the next number whenever it is free, and one that is busy
// computing holds nobody up; where it has not (Debian's Open MPI between nodes over TCP), group g of G draws
// g, g + G, g + 2 G, .. .
#pragma once

#include "dist/comm/mpi.h"

namespace headspan {

class SharedCounter {
 public:
  /// Starts at 0. Rank r of `comm` draws for group `group` of `groups`. Collective over comm.
  SharedCounter(const Comm& comm, int group, int groups);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  /// The next number. One rank of each group, alone.
  std::int64_t next();
  /// Whether numbers go to whoever asks first.
  bool is_shared() const { return window_ != MPI_WIN_NULL; }
  /// Ends the counter. Collective over comm.
  void close();

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::int64_t next_;
  int step_;
};

}  // namespace headspan
