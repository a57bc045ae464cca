// `headspan archive decode`: an archive (io/archive/archive_file.h), or some of its tokens and layers,
// becomes a file of keys and values again.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the command and returns the exit code, 0. The ranks share the chunks of tokens; the numbers do not
/// depend on how many they are. Throws AgreedError. Collective over world.
int decode_archive(const Job& job, const Comm& world, const Log& log);

}  // namespace headspan
