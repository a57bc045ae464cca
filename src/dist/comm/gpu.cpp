#include "dist/comm/gpu.h"

#include <fstream>

#include "base/provenance.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// The same on all ranks of a machine, also in containers, and different on two: of the kernel that runs.
std::string machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id.empty() ? hostname() : id;
}

}  // namespace

std::vector<int> ranks_at(const Comm& comm, const std::string& place) {
  const std::vector<char> letters(place.begin(), place.end());
  const auto places =
      comm.exchange(std::vector<std::vector<char>>(static_cast<std::size_t>(comm.size()), letters));
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r)
    if (places[static_cast<std::size_t>(r)] == letters) ranks.push_back(r);
  return ranks;
}

std::vector<int> ranks_on_gpu(const Comm& comm, int gpu) {
  std::string place;
  agree(comm, [&] { place = machine() + " " + gpu_bus(gpu); });
  return ranks_at(comm, place);
}

}  // namespace headspan
