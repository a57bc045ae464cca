// The versions of what this program is built with and runs on.
#pragma once

#include <string>

namespace headspan {

/// Returns the name and the version of the MPI that runs. MPI need not have been started.
std::string mpi_version();

/// Returns compiler, MPI, HDF5 and LibTorch in one line, for the files that the program writes. MPI need not
/// have been started.
std::string library_versions();

/// Returns a line for each library and one for the instructions of this processor, for --version. Asks no
/// GPU.
std::string list_libraries();

}  // namespace headspan
