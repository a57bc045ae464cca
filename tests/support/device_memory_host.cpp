#include "base/error.h"
#include "support/device_memory.h"

namespace headspan {

// Never called: without CUDA no communicator has a GPU.
void* allocate_on_gpu(int, std::size_t) { throw Error("no CUDA"); }
void free_on_gpu(int, void*) {}
void read_gpu(int, void*, const void*, std::size_t) {}
void write_gpu(int, void*, const void*, std::size_t) {}
void write_gpu_late(int, void*, const void*, std::size_t) {}

}  // namespace headspan
