// The inspect command: says what each file is, and checks it. Result files given together become tables
// (app/inspect/result_table.h).
#pragma once

#include <string>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

/// Prints to standard output and returns the exit code: 2 when some file is not what it should be, which is
/// told on stderr while the others are looked at all the same. Only rank 0 works. Throws AgreedError when the
/// environment fails. Collective over world.
int inspect(const std::vector<std::string>& files, const Comm& world);

}  // namespace headspan
