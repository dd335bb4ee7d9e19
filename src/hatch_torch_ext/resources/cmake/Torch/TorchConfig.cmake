# find_package(Torch), answered by hatch-torch-ext for one entry of the matrix.
#
# The facts come from torch_ext_facts.cmake, which is written for the entry. Names are those of torch's own package,
# so that ordinary projects need no change; unlike it, this one needs no CUDA toolkit, no kineto and no MKL,
# and does not change CMAKE_CUDA_ARCHITECTURES and CMAKE_CUDA_FLAGS.
include("${CMAKE_CURRENT_LIST_DIR}/../torch_ext_facts.cmake")

set(TORCH_INSTALL_PREFIX "${TorchExt_PREFIX}")
set(TORCH_INCLUDE_DIRS "${TorchExt_INCLUDE_DIRS}")
set(TORCH_INCLUDE_DIR "${TorchExt_INCLUDE_DIRS}")
set(TORCH_LIBRARY_DIRS "${TorchExt_LIBRARY_DIR}")
set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=${TorchExt_CXX11_ABI}")
set(TORCH_VERSION "${TorchExt_VERSION}")
set(Torch_VERSION "${TorchExt_VERSION}")

include("${CMAKE_CURRENT_LIST_DIR}/../TorchExtTargets.cmake")
set(TORCH_LIBRARIES torch torch_library "${TorchExt_LIBRARY_DIR}/libc10.so")

if(TorchExt_CUDA)
  include("${CMAKE_CURRENT_LIST_DIR}/../TorchExtCudaTargets.cmake")
  set(TORCH_CUDA_LIBRARIES "${TorchExt_LIBRARY_DIR}/libc10_cuda.so")
  if(TARGET CUDA::cudart)
    list(APPEND TORCH_CUDA_LIBRARIES CUDA::cudart)
  endif()
  list(APPEND TORCH_LIBRARIES c10_cuda_library)
endif()

find_library(TORCH_LIBRARY torch PATHS "${TorchExt_LIBRARY_DIR}" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(TORCH_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Torch REQUIRED_VARS TORCH_LIBRARY TORCH_INCLUDE_DIRS VERSION_VAR TorchExt_VERSION HANDLE_VERSION_RANGE)
set(TORCH_FOUND "${Torch_FOUND}")
