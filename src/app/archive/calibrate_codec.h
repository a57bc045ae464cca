// `headspan archive calibrate`: fits a codec to the keys and values of a model over some tokens, and writes
// it.
#pragma once

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Runs the command and returns the exit code: 0, or 1 if a signal stopped it. Throws AgreedError. Collective
/// over world.
int calibrate_codec(const Job& job, const Comm& world, const Log& log);

}  // namespace headspan
