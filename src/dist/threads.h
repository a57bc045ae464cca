// How many threads a rank uses, decided once and in one place: OpenMP, BLAS and LibTorch each start as many
// threads as they see cores, and several ranks of one node see the same cores.
#pragma once

#include "dist/mpi.h"

namespace headspan {

/// Threads for this rank: OMP_NUM_THREADS where it is set, else the cores of this rank's affinity mask
/// divided by the number of ranks of the node that share it, at least 1. Collective over `comm`.
int threads_per_rank(const Comm& comm);

/// Sets the threads of OpenMP and of BLAS (OpenBLAS' own pool where that is the BLAS).
void set_threads(int threads);

/// Lets BLAS take its working memory now. OpenBLAS takes 128 MiB with its first product of some size, and where
/// it gets none it tries again for ever, while the other ranks wait. Local.
void reserve_blas_memory();

/// BLAS on one thread while this object lives: for loops that are themselves spread over OpenMP threads.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas();
  ~SingleThreadedBlas();
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int before_;
};

/// Empty, or one line that says that OpenBLAS runs slow generic kernels on this processor and how to mend it.
std::string blas_warning();

}  // namespace headspan
