#include "dist/threads.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <omp.h>

#include "base/checked.h"
#include "dist/comm/node_share.h"
#include "dist/matrix/scalapack.h"

// Functions of OpenBLAS; null with any other BLAS.
extern "C" {
__attribute__((weak)) void openblas_set_num_threads(int threads);
__attribute__((weak)) int openblas_get_num_threads();
}

namespace headspan {
namespace {

void set_blas_threads(int threads) {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

}  // namespace

std::vector<int> allowed_cores(const MaskReader& read) {
  constexpr int kMaxCores = 1 << 20;
  for (int cores = CPU_SETSIZE; cores <= kMaxCores; cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(cores);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(cores),
                                                                [](cpu_set_t* set) { CPU_FREE(set); });
    if (!mask) throw std::bad_alloc();
    CPU_ZERO_S(bytes, mask.get());
    if (read(bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;  // the system has more cores
      break;
    }
    std::vector<int> allowed;
    for (int core = 0; core < cores; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.get())) allowed.push_back(core);
    return allowed;
  }
  throw_errno("cannot learn the cores of this process", "sched_getaffinity");
}

int threads_per_rank(const Comm& comm, const std::vector<int>& cores, const std::vector<GroupLimit>& quotas) {
  const Comm node = comm.split_shared();
  const auto end = to_size(node.max(cores.empty() ? 0 : cores.back() + 1));
  std::vector<int> load(end, 0);  // ranks of this node that may run on each core
  for (const int core : cores) load[to_size(core)] = 1;
  node.sum(load.data(), static_cast<std::int64_t>(end));
  double share = 0;
  for (const int core : cores) share += 1.0 / load[to_size(core)];
  share = std::min(share, share_of_limits(quotas, node));
  if (const char* asked = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(asked); threads > 0) return threads;
  return std::max(1, static_cast<int>(share + 1e-6));
}

int threads_per_rank(const Comm& comm) {
  return threads_per_rank(comm, allowed_cores(), cgroup_limits().cores);
}

void set_threads(int threads) {
  omp_set_num_threads(threads);
  set_blas_threads(threads);
}

void reserve_blas_memory() {
  constexpr int kSize = 128;  // smaller products need none
  const std::vector<double> x(kSize * kSize, 1.0);
  std::vector<double> y(kSize * kSize);
  const double one = 1, zero = 0;
  dgemm_("N", "N", &kSize, &kSize, &kSize, &one, x.data(), &kSize, x.data(), &kSize, &zero, y.data(), &kSize);
}

SingleThreadedBlas::SingleThreadedBlas()
    : before_(openblas_get_num_threads != nullptr ? openblas_get_num_threads() : 1) {
  set_blas_threads(1);
}

SingleThreadedBlas::~SingleThreadedBlas() { set_blas_threads(before_); }

}  // namespace headspan
