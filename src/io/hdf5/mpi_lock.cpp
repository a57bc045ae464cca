#include "io/hdf5/mpi_lock.h"

#include <filesystem>
#include <regex>
#include <system_error>

#include <unistd.h>

namespace headspan {

void remove_mpi_locks(const std::string& path, std::optional<pid_t> process) {
  namespace fs = std::filesystem;
  const std::string name = fs::path(path).filename().string();
  const std::regex rest("-[0-9]+-" + (process ? std::to_string(*process) : "[0-9]+") + "\\.lock");
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const std::string other = entry.path().filename().string();
    if (other.rfind(name, 0) == 0 && std::regex_match(other.substr(name.size()), rest))
      ::unlink(entry.path().c_str());
  }
}

}  // namespace headspan
