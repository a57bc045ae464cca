// GPUs where there are none: two libraries that take the places of LibTorch's for CUDA (by their names, put
// before a program by LD_PRELOAD), with the CUDA runtime and NCCL in them. A program built for GPUs finds
// some, and goes the same ways as on real ones: its buffers, copies, choices and messages are tested, and
// whether it waits for what is under way on streams of its own; not speed.
//
// memory: host memory under addresses that no processor reads: whoever takes device memory for the host's
// dies. Operators: LibTorch's for the CPU, on that memory, done when they return, on whichever stream;
// refused where a GPU would refuse tensors of several devices. What the CUDA runtime puts on a stream: late
// (streams.h). NCCL: between processes of one machine, on its streams.
//
// SIMULATED_GPUS: how many, else 1. SIMULATED_GPU_BYTES: memory of each, else 8 GiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simulated {

constexpr std::uintptr_t kFar = std::uintptr_t{1} << 47;  // the first bit that no address of a process has

inline void* to_device(void* address) {
  return address == nullptr ? nullptr
                            : reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) | kFar);
}
/// The same for what is in host memory.
inline void* to_host(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~kFar);
}

/// Of the environment.
std::size_t number(const char* name, std::size_t otherwise);

int gpu_count();
/// Of this thread.
int current_gpu();
/// False where there is no such GPU.
bool set_current_gpu(int gpu);

std::size_t total_bytes();
/// Of this process, of the current GPU.
std::size_t free_bytes();

/// Device memory with arbitrary contents; null where there is not so much left.
void* allocate(std::size_t bytes);
void release(void* address);

}  // namespace simulated
