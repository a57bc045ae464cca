// Checks, before work begins, a file that a command is going to write: it must not replace anything that the
// job reads, not even through links, and it must be writable. Creates nothing. Not how the file is written
// (io/outputs/publish.h).
#pragma once

#include <string>
#include <vector>

#include "app/job/job.h"

namespace headspan {

/// A key of the job, its value, and a file that is written because of it.
struct WriteTarget {
  std::string key, value, path;
};

/// Returns the files that the job reads, with those that belong to them, but not the checkpoints that a
/// manifest names.
std::vector<std::string> input_files(const Job& job);

/// Returns the files of a checkpoint's folder that are read.
std::vector<std::string> checkpoint_files(const std::string& folder);

/// Throws InputError if the target is one of `inputs` or not a regular file, or if an input has the name of
/// an unfinished file of the target. Throws Error if its folder cannot be created or written to. Local.
void check_target(const WriteTarget& target, const std::vector<std::string>& inputs);

}  // namespace headspan
