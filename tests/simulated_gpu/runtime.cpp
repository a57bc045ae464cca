// What headspan and its tests call of the CUDA runtime.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>

#include "simulated_gpu/simulated_gpu.h"

namespace {

/// Streams and events are but addresses: what is put on a stream is done at once.
char something = 0;

template <class Handle>
Handle some() {
  return reinterpret_cast<Handle>(&something);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = simulated::gpu_count();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorNoDevice ? "no simulated GPU" : "the simulated GPU refuses this";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaSetDevice(int gpu) {
  return simulated::set_current_gpu(gpu) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = simulated::free_bytes();
  *total = simulated::total_bytes();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int gpu) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(gpu));
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  *address = simulated::allocate(bytes);
  return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* address) {
  simulated::release(address);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = std::malloc(bytes);
  return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memmove(simulated::to_host(to), simulated::to_host(from), bytes);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* argument) {
  function(argument);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = some<cudaStream_t>();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = some<cudaEvent_t>();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

}  // extern "C"
