# ScaLAPACK with the BLAS and LAPACK that it uses, as the target ScaLAPACK::ScaLAPACK.
# Hints: ScaLAPACK_LIBRARY names the library (Cray LibSci, MKL, ...); the BLAS is chosen as CMake's FindBLAS does.
find_package(BLAS REQUIRED)
find_package(LAPACK REQUIRED)
find_library(ScaLAPACK_LIBRARY NAMES scalapack-openmpi scalapack scalapack-mpich)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ScaLAPACK REQUIRED_VARS ScaLAPACK_LIBRARY)
if(ScaLAPACK_FOUND AND NOT TARGET ScaLAPACK::ScaLAPACK)
  add_library(ScaLAPACK::ScaLAPACK INTERFACE IMPORTED)
  target_link_libraries(ScaLAPACK::ScaLAPACK INTERFACE ${ScaLAPACK_LIBRARY} LAPACK::LAPACK BLAS::BLAS)
endif()
