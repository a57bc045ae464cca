#include "base/error.h"
#include "dist/comm/gpu.h"

namespace headspan {

Gpus visible_gpus() { return {0, "this program was built without GPU support"}; }

std::string gpu_libraries() { return ""; }

std::int64_t free_gpu_memory(int) { throw Error(visible_gpus().why_none); }

std::string gpu_bus(int) { throw Error(visible_gpus().why_none); }

}  // namespace headspan
