// The GPUs that this process sees, and which ranks use them. A program built without CUDA sees none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

struct Gpus {
  int count = 0;
  std::string why_none;  ///< why count is 0; otherwise empty
};

/// Returns the GPUs that CUDA shows to this process. Local.
Gpus visible_gpus();

/// Returns the libraries for GPUs, for example "CUDA 13.0, NCCL 2.27.3"; "" if built without. Asks no GPU.
std::string gpu_libraries();

/// Returns the free bytes of a GPU, which becomes this thread's current device: switching back to another
/// would create a context of some hundred MB there. Throws Error. Local.
std::int64_t free_gpu_memory(int gpu);

/// Returns the PCI bus id, such as "0000:19:00.0", which identifies a GPU of a machine whatever number each
/// rank sees it under. Throws Error. Local.
std::string gpu_bus(int gpu);

/// Returns the ranks that pass the same `location`, this one included, in order. Collective over comm.
std::vector<int> ranks_at(const Comm& comm, const std::string& location);

/// Returns the ranks that use the same GPU of the same machine, this one included, in order. Collective over
/// comm.
std::vector<int> ranks_on_gpu(const Comm& comm, int gpu);

}  // namespace headspan
