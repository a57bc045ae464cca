// A rank's share of the memory of its node, and of limits that processes share. Not threads (dist/threads.h).
#pragma once

#include <vector>

#include "base/process/cgroup.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Returns the smallest of this rank's `limits`, each divided by the number of ranks in its group; infinity
/// if there are none. Collective over `node`, the ranks of one node.
double share_of_limits(const std::vector<GroupLimit>& limits, const Comm& node);

/// Returns bytes per rank: the memory of the node divided by its ranks, or a rank's share of `limits` if that
/// is less; the minimum over all ranks. Throws Error. Collective over `comm`.
double memory_per_rank(const Comm& comm, const std::vector<GroupLimit>& limits);

}  // namespace headspan
