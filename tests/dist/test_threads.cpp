#include <algorithm>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>

#include "dist/threads.h"

extern "C" __attribute__((weak)) int openblas_get_num_threads();

namespace headspan {
namespace {

/// Sets OMP_NUM_THREADS, or removes it where `value` is null, and puts it back.
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

int cores_of_this_rank() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  return CPU_COUNT(&mask);
}

TEST(Threads, OfARankAreWhatTheUserAsksFor) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ThreadsVariable asked("3");

  EXPECT_EQ(threads_per_rank(world), 3);
}

TEST(Threads, OfARankAreItsShareOfTheCores) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ThreadsVariable none(nullptr);

  EXPECT_EQ(threads_per_rank(world),
            std::max(1, cores_of_this_rank() / world.size()));  // the tests bind no rank
}

TEST(Threads, IgnoreAnUnusableWish) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int share = std::max(1, cores_of_this_rank() / world.size());

  for (const char* wish : {"", "0", "-2", "many"}) {
    const ThreadsVariable asked(wish);
    EXPECT_EQ(threads_per_rank(world), share) << '"' << wish << '"';
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
