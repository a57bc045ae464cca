// What one rank may use of its node where the node's ranks share it: memory. Not threads (dist/threads.h).
#pragma once

#include <vector>

#include "base/process/cgroup.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// The smallest of this rank's `limits`, each divided by the ranks of `node` that are in its group; infinity
/// without any. Collective over `node`, the ranks of one node.
double share_of_limits(const std::vector<GroupLimit>& limits, const Comm& node);

/// Bytes for one rank: the memory of its node, divided by the ranks there, or its share of a control group's
/// limit where that is less; the least of all ranks. Throws Error. Collective over `comm`.
double memory_per_rank(const Comm& comm, const std::vector<GroupLimit>& limits);

}  // namespace headspan
