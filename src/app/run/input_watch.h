// InputWatch: whether the files that a job reads are still those that it began with. What is read in several
// steps, a digest and then the data, would otherwise be of two files if one is replaced in between. Not a
// checksum: it compares inode, size and time of change.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/job/job.h"

namespace headspan {

class InputWatch {
 public:
  /// Remembers those of the files that are there. Local.
  explicit InputWatch(const std::vector<std::string>& files);

  /// Remembers the files that the job reads while it runs: not those that are read once, as a whole, before
  /// it begins, and not the checkpoints that a manifest names. Local.
  explicit InputWatch(const Job& job);

  /// Remembers these files too; of those that it knows, what they were. Local.
  void add(const std::vector<std::string>& files);

  /// Throws Error, which names the first file that was changed, replaced or removed since. Call it when the
  /// files are read, before anything is kept that is made of them. Local.
  void check() const;

 private:
  std::map<std::string, std::string> states_;  // by path
};

}  // namespace headspan
