// LostRankWatch: ends the job when a rank gives no sign of life, because it is stopped or its node is gone.
// MPI itself would let the others wait forever. A rank that computes for hours, or waits for a slow disk, is
// not lost: its watch has a thread of its own. Not for a rank that died, which the launcher sees.
#pragma once

#include <memory>

#include "dist/comm/mpi.h"

namespace headspan {

class LostRankWatch {
 public:
  /// Each rank hears its left neighbour (rank - 1, cyclic), and calls abort_job() once it has heard nothing
  /// for `seconds`. A neighbour that was never heard is not watched: the network may refuse the packets. 0
  /// seconds, or a single rank: nothing is watched. Collective over world.
  LostRankWatch(const Comm& world, double seconds);
  ~LostRankWatch();  ///< Tells the neighbour that this rank's work is done. Local.
  LostRankWatch(const LostRankWatch&) = delete;
  LostRankWatch& operator=(const LostRankWatch&) = delete;

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;
};

}  // namespace headspan
