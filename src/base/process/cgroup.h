// Limits that Linux control groups (cgroups, versions 1 and 2) set for this process, on behalf of Slurm's
// --mem, containers and systemd. Not what the machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

/// A limit on all processes of one group together.
struct GroupLimit {
  std::uint64_t group;  ///< inode of the group's folder, the same for all of its processes on a node
  double amount;
};

struct GroupLimits {
  std::vector<GroupLimit>
      memory;                     ///< bytes; memory.high counts too, because processes above it are throttled
  std::vector<GroupLimit> cores;  ///< quotas of processor time as numbers of cores, which may be fractions
};

/// Returns the limits of the groups that this process is in and of their visible ancestors. Groups without a
/// limit and files that cannot be read are left out. `root` is prepended to every path that is read.
GroupLimits cgroup_limits(const std::string& root = "");

}  // namespace headspan
