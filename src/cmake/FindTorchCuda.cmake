# LibTorch's CUDA part as the target Torch::Cuda, the CUDA runtime as Cuda::Runtime and NCCL as Cuda::Nccl. LibTorch is in
# HEADSPAN_TORCH_DIR: PyTorch's wheel or an official LibTorch. Headers and libraries of the other two come from the wheel's
# companion packages (nvidia/ beside torch/), otherwise from a toolkit: in CUDA_HOME, otherwise in its usual place. No CUDA
# compiler is needed.
file(GLOB packages ${HEADSPAN_TORCH_DIR}/../nvidia/cu[0-9]* ${HEADSPAN_TORCH_DIR}/../nvidia/cuda_runtime)
set(nccl_package ${HEADSPAN_TORCH_DIR}/../nvidia/nccl)
set(named $ENV{CUDA_HOME} $ENV{CUDA_PATH})
set(usual /usr/local/cuda)
find_library(TorchCuda_torch_cuda NAMES torch_cuda HINTS ${HEADSPAN_TORCH_DIR}/lib)
find_library(TorchCuda_c10_cuda NAMES c10_cuda HINTS ${HEADSPAN_TORCH_DIR}/lib)
find_path(TorchCuda_runtime_headers cuda_runtime_api.h HINTS ${packages} ${named} PATHS ${usual} PATH_SUFFIXES include)
find_library(TorchCuda_runtime NAMES libcudart.so.13 libcudart.so.12 cudart HINTS ${packages} ${named} PATHS ${usual} PATH_SUFFIXES lib lib64)
find_path(TorchCuda_nccl_headers nccl.h HINTS ${nccl_package} ${named} PATHS ${usual} PATH_SUFFIXES include)
find_library(TorchCuda_nccl NAMES libnccl.so.2 nccl HINTS ${nccl_package} ${named} PATHS ${usual} PATH_SUFFIXES lib lib64)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchCuda REQUIRED_VARS TorchCuda_torch_cuda TorchCuda_c10_cuda TorchCuda_runtime_headers
  TorchCuda_runtime TorchCuda_nccl_headers TorchCuda_nccl)
if(TorchCuda_FOUND AND NOT TARGET Torch::Cuda)
  add_library(Cuda::Runtime INTERFACE IMPORTED)
  target_include_directories(Cuda::Runtime SYSTEM INTERFACE ${TorchCuda_runtime_headers})
  target_link_libraries(Cuda::Runtime INTERFACE ${TorchCuda_runtime})
  add_library(Cuda::Nccl INTERFACE IMPORTED)
  target_include_directories(Cuda::Nccl SYSTEM INTERFACE ${TorchCuda_nccl_headers})
  target_link_libraries(Cuda::Nccl INTERFACE Cuda::Runtime ${TorchCuda_nccl})
  # An installed program finds them too where they are in the project's folder, which CMake leaves out of its search path.
  foreach(library ${TorchCuda_runtime} ${TorchCuda_nccl})
    get_filename_component(folder ${library} DIRECTORY)
    target_link_options(Cuda::Runtime INTERFACE -Wl,-rpath,${folder})
  endforeach()
  add_library(Torch::Cuda INTERFACE IMPORTED)
  target_link_libraries(Torch::Cuda INTERFACE Torch::Library Cuda::Runtime
    -Wl,--no-as-needed ${TorchCuda_torch_cuda} ${TorchCuda_c10_cuda} -Wl,--as-needed)
endif()
