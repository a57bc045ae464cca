#include <cuda_runtime_api.h>

#include "base/error.h"
#include "dist/gpu.h"

namespace headspan {

Gpus visible_gpus() {
  Gpus gpus;
  const cudaError_t code = cudaGetDeviceCount(&gpus.count);
  if (code != cudaSuccess) return {0, std::string("no GPU can be used here: ") + cudaGetErrorString(code)};
  if (gpus.count == 0) gpus.why_none = "no GPU is visible to this process";
  return gpus;
}

std::int64_t free_gpu_memory(int gpu) {
  int before = 0;
  std::size_t free = 0, total = 0;
  cudaError_t code = cudaGetDevice(&before);
  if (code == cudaSuccess) code = cudaSetDevice(gpu);
  if (code == cudaSuccess) code = cudaMemGetInfo(&free, &total);
  if (code == cudaSuccess) code = cudaSetDevice(before);
  if (code != cudaSuccess)
    throw Error("GPU " + std::to_string(gpu) + ": " + cudaGetErrorString(code) + " in cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

}  // namespace headspan
