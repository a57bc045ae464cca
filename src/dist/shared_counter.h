// A counter that ranks draw numbers from, each number once: how groups take the next unit of a sweep.
// One-sided, so that a group that is busy computing holds nobody up.
#pragma once

#include "dist/mpi.h"

namespace headspan {

class SharedCounter {
 public:
  /// Starts at 0, on rank 0 of `comm`. Collective over comm.
  explicit SharedCounter(const Comm& comm);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  /// The next number. Any rank, alone.
  std::int64_t next();
  /// Ends the counter. Collective over comm.
  void close();

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace headspan
