#include "dist/threads.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <omp.h>
#include <sched.h>

#include "dist/scalapack.h"

// OpenBLAS' own controls; null with any other BLAS.
extern "C" {
__attribute__((weak)) void openblas_set_num_threads(int threads);
__attribute__((weak)) int openblas_get_num_threads();
__attribute__((weak)) char* openblas_get_corename();
}

namespace headspan {
namespace {

void set_blas_threads(int threads) {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

}  // namespace

int threads_per_rank(const Comm& comm) {
  const Comm node = comm.split_shared();
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof(mask), &mask) == 0;
  std::vector<int> load(CPU_SETSIZE, 0);  // ranks of this node that may run on each core
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    load[static_cast<std::size_t>(cpu)] = known && CPU_ISSET(cpu, &mask);
  const std::vector<int> mine = load;
  node.sum(load.data(), CPU_SETSIZE);
  double share = 0;
  for (std::size_t cpu = 0; cpu < mine.size(); ++cpu)
    if (mine[cpu] != 0) share += 1.0 / load[cpu];
  if (const char* asked = std::getenv("OMP_NUM_THREADS"))
    if (const int threads = std::atoi(asked); threads > 0) return threads;
  return std::max(1, static_cast<int>(share + 1e-6));
}

void set_threads(int threads) {
  omp_set_num_threads(threads);
  set_blas_threads(threads);
}

void reserve_blas_memory() {
  constexpr int kSize = 128;  // smaller ones go without
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

std::string blas_warning() {
  if (openblas_get_corename == nullptr || !__builtin_cpu_supports("avx2")) return {};
  const std::string core = openblas_get_corename();
  for (const char* slow :
       {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "generic", "Generic"})
    if (core == slow)
      return "OpenBLAS runs its " + core +
             " kernels on a processor with AVX2, several times too slow; set OPENBLAS_CORETYPE=" +
             (__builtin_cpu_supports("avx512f") ? "SkylakeX" : "Haswell");
  return {};
}

}  // namespace headspan
