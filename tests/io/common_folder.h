// A temporary folder that all ranks of a communicator share. Its constructor and destructor are collective.
#pragma once

#include <optional>
#include <string>

#include "dist/comm/mpi.h"
#include "support/temp_folder.h"

namespace headspan {

class CommonFolder {
 public:
  CommonFolder(const Comm& comm, const std::string& name) : comm_(comm) {
    if (comm.is_root()) folder_.emplace(name);
    path_ = comm.broadcast(folder_ ? folder_->path("") : std::string(), 0);
  }
  ~CommonFolder() { comm_.barrier(); }

  std::string path(const std::string& file) const { return path_ + file; }

 private:
  const Comm& comm_;
  std::optional<TempFolder> folder_;  // on rank 0
  std::string path_;
};

}  // namespace headspan
