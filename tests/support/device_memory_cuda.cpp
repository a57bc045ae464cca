#include <chrono>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "support/device_memory.h"

namespace headspan {
namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw Error(std::string("CUDA: ") + cudaGetErrorString(code));
}

void CUDART_CB pause(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

}  // namespace

void* allocate_on_gpu(int gpu, std::size_t bytes) {
  void* data = nullptr;
  check(cudaSetDevice(gpu));
  check(cudaMalloc(&data, bytes));
  return data;
}

void free_on_gpu(int gpu, void* data) {
  cudaSetDevice(gpu);
  cudaFree(data);
}

void read_gpu(int gpu, void* host, const void* data, std::size_t bytes) {
  check(cudaSetDevice(gpu));
  check(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, cudaStreamLegacy));
  check(cudaStreamSynchronize(cudaStreamLegacy));
}

void write_gpu(int gpu, void* data, const void* host, std::size_t bytes) {
  check(cudaSetDevice(gpu));
  check(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, cudaStreamLegacy));
  check(cudaStreamSynchronize(cudaStreamLegacy));
}

void write_gpu_late(int gpu, void* data, const void* host, std::size_t bytes) {
  check(cudaSetDevice(gpu));
  void* staged = nullptr;  // a copy from pageable memory would wait for the pause; left to the process
  check(cudaMallocHost(&staged, bytes));
  std::memcpy(staged, host, bytes);
  check(cudaLaunchHostFunc(cudaStreamLegacy, pause, nullptr));
  check(cudaMemcpyAsync(data, staged, bytes, cudaMemcpyHostToDevice, cudaStreamLegacy));
}

}  // namespace headspan
