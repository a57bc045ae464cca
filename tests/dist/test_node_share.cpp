#include <cmath>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "dist/comm/node_share.h"

namespace headspan {
namespace {

double machine_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kilobytes = 0;
  file >> name >> kilobytes;
  return 1024 * kilobytes;
}

TEST(NodeShare, OfALimitIsDividedByTheRanksOfItsGroup) {
  const Comm node = Comm::duplicate(MPI_COMM_WORLD).split_shared();
  const auto rank = static_cast<std::uint64_t>(node.rank());
  const std::uint64_t job = 1, pair = 10 + rank / 2, self = 100 + rank;

  EXPECT_EQ(share_of_limits({}, node), INFINITY);
  EXPECT_EQ(share_of_limits({{self, 12e9}}, node), 12e9);
  EXPECT_EQ(share_of_limits({{job, 12e9}}, node), 12e9 / node.size());
  EXPECT_EQ(share_of_limits({{self, 5e9}, {job, 24e9}}, node), std::min(5e9, 24e9 / node.size()));
  const int in_pair = node.rank() / 2 * 2 + 1 < node.size() ? 2 : 1;
  EXPECT_EQ(share_of_limits({{pair, 6e9}, {pair, 4e9}}, node), 4e9 / in_pair);  // memory.max and memory.high
  EXPECT_EQ(share_of_limits(node.is_root() ? std::vector<GroupLimit>{{self, 3e9}} : std::vector<GroupLimit>{},
                            node),
            node.is_root() ? 3e9 : INFINITY);
}

TEST(NodeShare, OfMemoryIsTheMinimumOverAllRanks) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const auto rank = static_cast<std::uint64_t>(world.rank());

  EXPECT_EQ(memory_per_rank(world, {}), machine_bytes() / world.size());
  EXPECT_EQ(memory_per_rank(world, {{1, 64e6}}), 64e6 / world.size());
  EXPECT_EQ(memory_per_rank(world, {{100 + rank, 64e6 * (1 + world.rank())}}), 64e6);
  EXPECT_EQ(memory_per_rank(world, {{1, 9223372036854771712.0}}),
            machine_bytes() / world.size());  // "no limit"
}

}  // namespace
}  // namespace headspan
