#include "dist/comm/gpu.h"

#include <fstream>

#include "base/checked.h"
#include "base/provenance.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// Returns a text that is the same for all processes of a machine, also in containers: the id of its boot.
std::string machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id.empty() ? hostname() : id;
}

}  // namespace

std::vector<int> ranks_at(const Comm& comm, const std::string& location) {
  const std::vector<char> text(location.begin(), location.end());
  const auto texts = comm.exchange(std::vector<std::vector<char>>(to_size(comm.size()), text));
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r)
    if (texts[to_size(r)] == text) ranks.push_back(r);
  return ranks;
}

std::vector<int> ranks_on_gpu(const Comm& comm, int gpu) {
  std::string location;
  agree(comm, [&] { location = machine() + " " + gpu_bus(gpu); });
  return ranks_at(comm, location);
}

}  // namespace headspan
