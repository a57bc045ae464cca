#include "dist/comm/node_share.h"

#include <algorithm>
#include <limits>

#include <sys/sysinfo.h>

namespace headspan {
namespace {

bool contains(const std::vector<GroupLimit>& limits, std::uint64_t group) {
  return std::any_of(limits.begin(), limits.end(), [&](const auto& limit) { return limit.group == group; });
}

}  // namespace

double share_of_limits(const std::vector<GroupLimit>& limits, const Comm& node) {
  const std::vector<std::vector<GroupLimit>> all =
      node.exchange(std::vector<std::vector<GroupLimit>>(static_cast<std::size_t>(node.size()), limits));
  double share = std::numeric_limits<double>::infinity();
  for (const GroupLimit& limit : limits) {
    const auto sharing = std::count_if(
        all.begin(), all.end(), [&](const auto& rank_limits) { return contains(rank_limits, limit.group); });
    share = std::min(share, limit.amount / static_cast<double>(sharing));
  }
  return share;
}

double memory_per_rank(const Comm& comm, const std::vector<GroupLimit>& limits) {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) throw_errno("cannot learn the node's memory", "sysinfo");
  const Comm node = comm.split_shared();
  const double machine =
      static_cast<double>(info.totalram) * static_cast<double>(info.mem_unit) / node.size();
  return comm.min(std::min(machine, share_of_limits(limits, node)));
}

}  // namespace headspan
