// What Linux control groups (cgroups, version 1 and 2) allow this process: the limits that Slurm's --mem,
// containers and systemd set. Not what the machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

/// A limit on all processes of one group together.
struct GroupLimit {
  std::uint64_t group;  ///< inode of the group's folder: the same for all processes of a node that are in it
  double amount;
};

struct GroupLimits {
  std::vector<GroupLimit> memory;  ///< bytes; memory.high counts too: beyond it a process is held up
  std::vector<GroupLimit> cores;   ///< quotas of processor time, as a number of cores; may be a fraction
};

/// The limits of the groups that this process is in and of those above them, as far up as can be seen. Groups
/// without a limit are left out; so are files that cannot be read. `root` is put before every path that is
/// read.
GroupLimits cgroup_limits(const std::string& root = "");

}  // namespace headspan
