// The handles of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "simulated_gpu/streams.h"

namespace simulated {

Stream& stream_of(cudaStream_t handle);

}  // namespace simulated
