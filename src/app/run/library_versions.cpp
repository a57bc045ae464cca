#include "app/run/library_versions.h"

#include <algorithm>
#include <boost/version.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <dlfcn.h>
#include <hdf5.h>
#include <mpi.h>
#include <openssl/crypto.h>
#include <zlib.h>

#include "base/process/cpu_dispatch.h"
#include "base/provenance.h"
#include "dist/blas_core.h"
#include "dist/comm/gpu.h"
#include "dist/matrix/scalapack.h"
#include "dist/onednn.h"
#include "model/core/torch_runtime.h"

namespace headspan {
namespace {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

/// Returns the file that holds a function of a library which does not tell its version.
template <class Function>
std::string file_of(Function* function) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(function), &info) == 0) return "unknown";
  std::error_code none;
  return std::filesystem::canonical(info.dli_fname, none).string();
}

std::string boost_version() {
  return std::to_string(BOOST_VERSION / 100000) + "." + std::to_string(BOOST_VERSION / 100 % 1000);
}

std::string json_version() {
  return std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + "." + std::to_string(NLOHMANN_JSON_VERSION_MINOR) +
         "." + std::to_string(NLOHMANN_JSON_VERSION_PATCH);
}

/// Returns the best instructions that this processor has and headspan has kernels for.
std::string instructions() {
  if (has_vbmi()) return "AVX-512 with VNNI and VBMI";
  if (has_vnni()) return "AVX-512 with VNNI";
  return best_lanes() == 16 ? "AVX-512" : best_lanes() == 8 ? "AVX2" : "the compiler's default";
}

}  // namespace

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, static_cast<std::size_t>(length));
  std::replace(name.begin(), name.end(), '\t', ' ');  // MPICH's
  return name.substr(0, name.find_first_of(",\n"));
}

std::string library_versions() {
  return compiler() + "; " + mpi_version() + "; HDF5 " + hdf5_version() + "; LibTorch " + torch_version();
}

std::string list_libraries() {
  std::string text;
  for (const auto& [name, version] : {std::pair<const char*, std::string>{"compiler", compiler()},
                                      {"MPI", mpi_version()},
                                      {"HDF5", hdf5_version()},
                                      {"LibTorch", torch_version()},
                                      {"oneDNN", onednn_version()},
                                      {"GPUs", gpu_libraries()},
                                      {"BLAS", describe_blas().empty() ? file_of(&dgemm_) : ""},
                                      {"ScaLAPACK", file_of(&pdpotrf_)},
                                      {"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING)},
                                      {"zlib", zlibVersion()},
                                      {"Boost", boost_version()},
                                      {"nlohmann-json", json_version()},
                                      {"instructions", instructions()}})
    if (!version.empty()) text += name + std::string(": ") + version + "\n";
  return text;
}

}  // namespace headspan
