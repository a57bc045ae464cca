// The number of threads of a rank. By default OpenMP, BLAS and LibTorch each start as many threads as they
// see cores, and all ranks of a node see the same cores. Not how idle threads wait
// (base/process/process_setup.h).
#pragma once

#include <functional>
#include <vector>

#include <sched.h>

#include "base/process/cgroup.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Fills a mask of `bytes` bytes and returns 0; returns -1 with errno EINVAL if the mask is too small.
using MaskReader = std::function<int(std::size_t bytes, cpu_set_t* mask)>;

/// Returns the numbers of the cores that this process may run on, from its affinity mask of any length. Tests
/// replace `read`. Throws Error.
std::vector<int> allowed_cores(const MaskReader& read = [](std::size_t bytes, cpu_set_t* mask) {
  return sched_getaffinity(0, bytes, mask);
});

/// Returns the number of threads for this rank: OMP_NUM_THREADS if it is set, otherwise this rank's share of
/// `cores`, each divided by the ranks of the node that may run on it, or of the control groups' `quotas` if
/// that is less; rounded down, at least 1. Collective over `comm`.
int threads_per_rank(const Comm& comm, const std::vector<int>& cores, const std::vector<GroupLimit>& quotas);

/// Returns the number of threads for the cores and quotas of this process. Collective over `comm`.
int threads_per_rank(const Comm& comm);

/// Sets the number of threads of OpenMP and, if BLAS is OpenBLAS, of its own pool. Local.
void set_threads(int threads);

/// Makes BLAS allocate its working memory now. OpenBLAS allocates 128 MiB in its first larger product, and if
/// that fails it tries again for ever, while the other ranks wait. Local.
void reserve_blas_memory();

/// Runs BLAS on one thread while this object lives: for loops that OpenMP threads share.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas();
  ~SingleThreadedBlas();
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int before_;
};

}  // namespace headspan
