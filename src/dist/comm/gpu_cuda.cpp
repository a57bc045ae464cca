#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/error.h"
#include "base/provenance.h"
#include "dist/comm/gpu.h"

namespace headspan {

Gpus visible_gpus() {
  Gpus gpus;
  const cudaError_t code = cudaGetDeviceCount(&gpus.count);
  if (code != cudaSuccess) return {0, std::string("no GPU can be used here: ") + cudaGetErrorString(code)};
  if (gpus.count == 0) gpus.why_none = "no GPU is visible to this process";
  return gpus;
}

std::string gpu_libraries() {
  int cuda = 0, nccl = 0;
  if (cudaRuntimeGetVersion(&cuda) != cudaSuccess || ncclGetVersion(&nccl) != ncclSuccess) return "unknown";
  return "CUDA " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10) + ", NCCL " +
         std::to_string(nccl / 10000) + "." + std::to_string(nccl % 10000 / 100) + "." +
         std::to_string(nccl % 100);
}

std::int64_t free_gpu_memory(int gpu) {
  std::size_t free = 0, total = 0;
  cudaError_t code = cudaSetDevice(gpu);
  if (code == cudaSuccess) code = cudaMemGetInfo(&free, &total);
  if (code != cudaSuccess)
    throw Error("GPU " + std::to_string(gpu) + ": " + cudaGetErrorString(code) + " in cudaMemGetInfo");
  return static_cast<std::int64_t>(free);
}

std::string gpu_bus(int gpu) {
  const Gpus gpus = visible_gpus();
  if (gpu >= gpus.count)
    throw Error(hostname() + ": " +
                (gpus.why_none.empty() ? "there is no GPU " + std::to_string(gpu) : gpus.why_none));
  char text[32] = {};
  if (const cudaError_t code = cudaDeviceGetPCIBusId(text, sizeof text, gpu); code != cudaSuccess)
    throw Error("GPU " + std::to_string(gpu) + ": " + cudaGetErrorString(code) + " in cudaDeviceGetPCIBusId");
  return text;
}

}  // namespace headspan
