// The inspect command: says what each file is, and checks it. Result files given together become tables
// (app/inspect/result_table.h).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Prints to standard output, with `json` an array of an object for each file, and returns the exit code: 2
/// if a file is not what it should be, which is reported on standard error; the other files are still
/// inspected. Only rank 0 works. Throws AgreedError if the environment fails. Collective over world.
int inspect(const std::vector<std::string>& files, bool json, const Comm& world, const Log& log);

}  // namespace headspan
