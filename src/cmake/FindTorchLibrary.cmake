# LibTorch as the target Torch::Library: the distribution's package, an official LibTorch, or PyTorch's wheel, found by
# its headers and libraries. (Torch's own CMake config changes global flags and, for a CUDA wheel, requires a CUDA toolkit,
# which headspan does not need.)
find_path(TorchLibrary_INCLUDE_DIR ATen/ATen.h HINTS ${HEADSPAN_TORCH_DIR}/include)
find_library(TorchLibrary_torch NAMES torch HINTS ${HEADSPAN_TORCH_DIR}/lib)
find_library(TorchLibrary_cpu NAMES torch_cpu HINTS ${HEADSPAN_TORCH_DIR}/lib)
find_library(TorchLibrary_c10 NAMES c10 HINTS ${HEADSPAN_TORCH_DIR}/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLibrary
  REQUIRED_VARS TorchLibrary_INCLUDE_DIR TorchLibrary_torch TorchLibrary_cpu TorchLibrary_c10)
if(TorchLibrary_FOUND AND NOT TARGET Torch::Library)
  add_library(Torch::Library INTERFACE IMPORTED)
  target_include_directories(Torch::Library SYSTEM INTERFACE
    ${TorchLibrary_INCLUDE_DIR} ${TorchLibrary_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(Torch::Library INTERFACE ${TorchLibrary_torch} ${TorchLibrary_cpu} ${TorchLibrary_c10})
  # The header that says which C++ it needs; all others need the same.
  file(STRINGS ${TorchLibrary_INCLUDE_DIR}/torch/csrc/api/include/torch/all.h needs_cxx20 REGEX "__cplusplus < 202002L")
  if(needs_cxx20)
    target_compile_features(Torch::Library INTERFACE cxx_std_20)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      # False alarms where texts are joined by + (GCC's PR 105651).
      target_compile_options(Torch::Library INTERFACE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
    endif()
  endif()
  if(HEADSPAN_TORCH_DIR)
    # The wheel's libtorch exports its own parts of libstdc++, so the real one must come first.
    target_link_options(Torch::Library INTERFACE -Wl,--no-as-needed -lstdc++ -Wl,--allow-shlib-undefined
      -Wl,-rpath,${HEADSPAN_TORCH_DIR}/lib)
  endif()
endif()
