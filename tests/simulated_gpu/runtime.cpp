// What headspan and its tests call of the CUDA runtime.
#include "simulated_gpu/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simulated_gpu/simulated_gpu.h"

namespace simulated {

Stream& stream_of(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy ? default_stream()
                                                         : *reinterpret_cast<Stream*>(handle);
}

}  // namespace simulated

namespace {

using simulated::stream_of;

simulated::Mark& mark_of(cudaEvent_t event) { return *reinterpret_cast<simulated::Mark*>(event); }

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
  simulated::wait_for(simulated::default_stream());  // what is to be given back there
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
  simulated::wait_for(simulated::default_stream());
  simulated::release(address);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  *address = std::malloc(bytes);
  return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  simulated::put(stream_of(stream),
                 [=] { std::memmove(simulated::to_host(to), simulated::to_host(from), bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  simulated::put(stream_of(stream), [=] { function(argument); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(&simulated::make_stream());
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  simulated::wait_for(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  simulated::put_wait(stream_of(stream), mark_of(event));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new simulated::Mark);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &mark_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  mark_of(event) = simulated::mark(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return simulated::is_past(mark_of(event)) ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"
