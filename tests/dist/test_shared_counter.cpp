// Every number is drawn once, whichever ranks draw.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include <gtest/gtest.h>

#include "dist/comm/shared_counter.h"

namespace headspan {
namespace {

/// Returns the numbers below `count` that this rank draws for its group.
std::vector<std::int64_t> draw(SharedCounter& counter, std::int64_t count) {
  std::vector<std::int64_t> mine;
  for (std::int64_t n = counter.next(); n < count; n = counter.next()) mine.push_back(n);
  return mine;
}

TEST(SharedCounter, GivesEachNumberOnce) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const int groups : {1, world.size()}) {
    SharedCounter counter(world, groups == 1 ? 0 : world.rank(), groups);
    const bool draws = groups > 1 || world.is_root();

    const std::vector<std::int64_t> mine = draws ? draw(counter, 50) : std::vector<std::int64_t>();
    counter.close();

    std::vector<std::int64_t> all;
    const std::vector<std::vector<std::int64_t>> send(static_cast<std::size_t>(world.size()), mine);
    for (const auto& part : world.exchange(send)) all.insert(all.end(), part.begin(), part.end());
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

/// CMakeLists.txt runs this program a second time without one-sided communication.
TEST(SharedCounter, IsSharedWhereMpiCan) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  SharedCounter counter(world, world.rank(), world.size());
  const bool possible = world.size() > 1 && std::getenv("OMPI_MCA_osc") == nullptr;
  EXPECT_EQ(counter.is_shared(), possible);
  world.barrier();
  counter.close();
}

}  // namespace
}  // namespace headspan
