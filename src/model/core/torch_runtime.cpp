#include "model/core/torch_runtime.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

namespace headspan {

void set_torch_threads(int threads) { at::set_num_threads(threads); }

std::string torch_version() { return TORCH_VERSION; }

}  // namespace headspan
