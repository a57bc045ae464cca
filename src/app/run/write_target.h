// A file that a command is going to write, looked at before work begins: that it replaces nothing that the
// job reads, whatever links lead there, and that it could be written. Makes nothing. Not how it is written
// (io/outputs/publish.h).
#pragma once

#include <string>
#include <vector>

#include "app/job/job.h"

namespace headspan {

/// A key, what it holds, and a file that is written because of it.
struct WriteTarget {
  std::string key, value, path;
};

/// The files that a job names to be read, and those that belong to them; of model.manifest not what its rows
/// name.
std::vector<std::string> input_files(const Job& job);

/// What is read of a checkpoint's folder.
std::vector<std::string> checkpoint_files(const std::string& folder);

/// Throws InputError where the target is one of `inputs` or no regular file, or where one of them has the
/// name of an unfinished file of it, and Error where its folder could not be made or written in. Local.
void check_target(const WriteTarget& target, const std::vector<std::string>& inputs);

}  // namespace headspan
