// How many threads a rank uses, decided once and in one place: OpenMP, BLAS and LibTorch each start as many
// threads as they see cores, and several ranks of one node see the same cores.
#pragma once

#include <functional>
#include <vector>

#include <sched.h>

#include "base/process/cgroup.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Fills a mask of so many bytes and returns 0, or -1 with errno EINVAL where the mask is too small.
using MaskReader = std::function<int(std::size_t bytes, cpu_set_t* mask)>;

/// The numbers of the cores that this process may run on, by its affinity mask, however long that is. `read`
/// is for tests. Throws Error.
std::vector<int> allowed_cores(const MaskReader& read = [](std::size_t bytes, cpu_set_t* mask) {
  return sched_getaffinity(0, bytes, mask);
});

/// Threads for this rank: OMP_NUM_THREADS where it is set, else its share of `cores`, divided by the ranks of
/// the node that may run on each, and of the control groups' `quotas`; rounded down, at least 1. Collective
/// over `comm`.
int threads_per_rank(const Comm& comm, const std::vector<int>& cores, const std::vector<GroupLimit>& quotas);

/// The same, for what the system allows this rank.
int threads_per_rank(const Comm& comm);

/// Sets the threads of OpenMP and of BLAS (OpenBLAS' own pool where that is the BLAS).
void set_threads(int threads);

/// Lets BLAS take its working memory now. OpenBLAS takes 128 MiB with its first product of some size, and
/// where it gets none it tries again for ever, while the other ranks wait. Local.
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
