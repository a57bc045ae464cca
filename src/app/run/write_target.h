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

/// Returns whether two paths lead to one name in one folder, whether there is a file of that name or not.
bool have_one_name(const std::string& a, const std::string& b);

/// Throws InputError if the target is or would become one of `inputs` or is not a regular file, or if an
/// input has the name of an unfinished file of the target. Throws Error if its folder cannot be created or
/// written to. Local.
void check_target(const WriteTarget& target, const std::vector<std::string>& inputs);

}  // namespace headspan
