// The versions of the libraries that a result depends on, for its attributes.
#pragma once

#include <string>

namespace headspan {

/// Returns the versions of compiler, MPI, HDF5 and LibTorch in one line.
std::string library_versions();

}  // namespace headspan
