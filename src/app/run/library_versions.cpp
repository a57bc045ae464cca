#include "app/run/library_versions.h"

#include <hdf5.h>
#include <mpi.h>

#include "base/provenance.h"
#include "model/core/torch_runtime.h"

namespace headspan {

std::string library_versions() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  const std::string mpi_name(mpi, static_cast<std::size_t>(length));
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return compiler() + "; " + mpi_name.substr(0, mpi_name.find(',')) + "; HDF5 " + std::to_string(major) +
         "." + std::to_string(minor) + "." + std::to_string(release) + "; LibTorch " + torch_version();
}

}  // namespace headspan
