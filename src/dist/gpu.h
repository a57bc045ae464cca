// Which GPUs this process sees. A program built without CUDA sees none.
#pragma once

#include <cstdint>
#include <string>

namespace headspan {

struct Gpus {
  int count = 0;
  std::string why_none;  ///< empty where there are some
};

/// Local.
Gpus visible_gpus();

/// Bytes that are free on one of them. Throws Error. Local.
std::int64_t free_gpu_memory(int gpu);

}  // namespace headspan
