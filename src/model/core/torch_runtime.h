// Settings of LibTorch, for code that uses no tensors.
#pragma once

#include <string>

namespace headspan {

/// Sets the number of threads of every forward pass of this process. Local.
void set_torch_threads(int threads);

/// Returns the version of LibTorch, for example "1.13.0".
std::string torch_version();

}  // namespace headspan
