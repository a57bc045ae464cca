#include <cuda_runtime_api.h>

#include "dist/gpu.h"

namespace headspan {

Gpus visible_gpus() {
  Gpus gpus;
  const cudaError_t code = cudaGetDeviceCount(&gpus.count);
  if (code != cudaSuccess) return {0, std::string("no GPU can be used here: ") + cudaGetErrorString(code)};
  if (gpus.count == 0) gpus.why_none = "no GPU is visible to this process";
  return gpus;
}

}  // namespace headspan
