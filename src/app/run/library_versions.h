// The versions that a result depends on, for its attributes.
#pragma once

#include <string>

namespace headspan {

/// Compiler, MPI, HDF5 and LibTorch.
std::string library_versions();

}  // namespace headspan
