// GPUs where there are none: two libraries that take the places of LibTorch's for CUDA (by their names, put
// before a program by LD_PRELOAD), with the CUDA runtime and NCCL in them. A program built for GPUs finds
// some, and goes the same ways as on real ones: its buffers, copies, choices and messages are tested, though
// neither speed nor what a stream's order hides, for every call is done when it returns.
//
//   memory     host memory under addresses that no processor reads: whoever takes device memory for the
//   host's dies operators  LibTorch's for the CPU, on that memory; refused where a GPU would refuse tensors
//   of several devices NCCL       between processes of one machine
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
