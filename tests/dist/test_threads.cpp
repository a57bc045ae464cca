#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>

#include "dist/threads.h"

extern "C" __attribute__((weak)) int openblas_get_num_threads();

namespace headspan {
namespace {

/// Sets OMP_NUM_THREADS, or unsets it if `value` is null, and restores it.
class ThreadsVariable {
 public:
  explicit ThreadsVariable(const char* value) {
    if (const char* before = std::getenv(kName)) before_ = before;
    set(value);
  }
  ~ThreadsVariable() { set(before_.empty() ? nullptr : before_.c_str()); }
  ThreadsVariable(const ThreadsVariable&) = delete;
  ThreadsVariable& operator=(const ThreadsVariable&) = delete;

 private:
  static constexpr const char* kName = "OMP_NUM_THREADS";
  static void set(const char* value) {
    if (value != nullptr)
      setenv(kName, value, 1);
    else
      unsetenv(kName);
  }
  std::string before_;
};

constexpr int kMany = 64;  // cores, of which there are more than ranks

std::vector<int> cores_from(int first, int count) {
  std::vector<int> cores(static_cast<std::size_t>(count));
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

/// A system of `system_cores` cores, of which a process may use `allowed`.
MaskReader mask_of(int system_cores, const std::vector<int>& allowed) {
  return [=](std::size_t bytes, cpu_set_t* mask) {
    if (bytes < CPU_ALLOC_SIZE(system_cores)) {
      errno = EINVAL;
      return -1;
    }
    for (const int core : allowed) CPU_SET_S(static_cast<std::size_t>(core), bytes, mask);
    return 0;
  };
}

TEST(AllowedCores, AreThoseOfTheMask) {
  std::vector<int> listed;  // "0-1,4"
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Cpus_allowed_list:", 0) != 0) continue;
    std::istringstream ranges(line.substr(line.find('\t')));
    for (std::string range; std::getline(ranges, range, ',');) {
      const int first = std::stoi(range);
      const std::size_t dash = range.find('-');
      const int last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
      for (int core = first; core <= last; ++core) listed.push_back(core);
    }
  }

  EXPECT_EQ(allowed_cores(), listed);
}

TEST(AllowedCores, MayBeMoreThan1024) {
  EXPECT_EQ(allowed_cores(mask_of(1024, cores_from(0, 1024))).size(), 1024U);
  EXPECT_EQ(allowed_cores(mask_of(1536, cores_from(0, 1536))).size(), 1536U);
  EXPECT_EQ(allowed_cores(mask_of(8192, {3, 1024, 8191})), (std::vector<int>{3, 1024, 8191}));
}

TEST(AllowedCores, ThatCannotBeReadAreAnError) {
  for (const int code : {EINVAL, EPERM})
    EXPECT_THROW(allowed_cores([code](std::size_t, cpu_set_t*) {
                   errno = code;
                   return -1;
                 }),
                 Error);
}

TEST(Threads, OfARankAreWhatTheUserAsksFor) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ThreadsVariable asked("3");

  EXPECT_EQ(threads_per_rank(world), 3);
}

TEST(Threads, OfARankAreItsShareOfTheCores) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ThreadsVariable none(nullptr);

  EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {}), kMany / world.size());
  EXPECT_EQ(threads_per_rank(world, cores_from(world.rank() * kMany, kMany), {}),
            kMany);  // bound by the launcher
  EXPECT_EQ(threads_per_rank(world, cores_from(2000, 1536), {}), 1536 / world.size());
  EXPECT_GE(threads_per_rank(world), 1);
}

TEST(Threads, OfARankAreItsShareOfAQuota) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ThreadsVariable none(nullptr);
  const std::uint64_t shared = 7, self = 100 + static_cast<std::uint64_t>(world.rank());

  EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {{shared, 12}}), 12 / world.size());
  EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {{self, 2.5}, {shared, 12}}), 2);
  EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {{self, 0.5}}), 1);
  EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {{shared, 1000}}), kMany / world.size());
}

TEST(Threads, IgnoreAnInvalidValue) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);

  for (const char* wish : {"", "0", "-2", "many"}) {
    const ThreadsVariable asked(wish);
    EXPECT_EQ(threads_per_rank(world, cores_from(0, kMany), {}), kMany / world.size()) << '"' << wish << '"';
  }
}

TEST(Threads, AreSetForOpenMpAndBlas) {
  if (openblas_get_num_threads == nullptr) GTEST_SKIP() << "the BLAS is not OpenBLAS";
  set_threads(2);

  EXPECT_EQ(omp_get_max_threads(), 2);
  EXPECT_EQ(openblas_get_num_threads(), 2);
  {
    const SingleThreadedBlas single;
    EXPECT_EQ(openblas_get_num_threads(), 1);
    EXPECT_EQ(omp_get_max_threads(), 2);
  }
  EXPECT_EQ(openblas_get_num_threads(), 2);

  set_threads(1);
  EXPECT_EQ(openblas_get_num_threads(), 1);
}

}  // namespace
}  // namespace headspan
