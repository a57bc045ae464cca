// The lock of a group of ranks on a file that it writes (io/outputs/lock_file.h).
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "dist/comm/mpi.h"
#include "io/outputs/lock_file.h"

namespace headspan {

/// Takes the lock of the file at `path` and returns it on the root of comm, null on the other ranks. Throws
/// AgreedError if another run has it, and Stopped if a stop signal comes first. Collective over
/// comm.
std::unique_ptr<LockFile> take_lock(const std::string& path, const std::string& job_id, const Comm& comm,
                                    const Log& log);

}  // namespace headspan
