// Which GPUs this process sees. A program built without CUDA sees none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

struct Gpus {
  int count = 0;
  std::string why_none;  ///< empty where there are some
};

/// Local.
Gpus visible_gpus();

/// Bytes that are free on one of them, which becomes this thread's: to go back to another would make a
/// context on that one, of some hundred MB. Throws Error. Local.
std::int64_t free_gpu_memory(int gpu);

/// "0000:19:00.0", by which ranks know that they mean the same GPU whatever numbers they see. Throws Error.
/// Local.
std::string gpu_bus(int gpu);

/// The ranks whose `place` is the same text as this one's, this one among them, in order. Collective over
/// comm.
std::vector<int> ranks_at(const Comm& comm, const std::string& place);

/// The ranks that use the same GPU of the same machine as this one, this one among them, in order. Collective
/// over comm.
std::vector<int> ranks_on_gpu(const Comm& comm, int gpu);

}  // namespace headspan
