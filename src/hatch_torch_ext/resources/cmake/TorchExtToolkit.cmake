# The entry's CUDA toolkit, where it has one, with a target that newer toolkits lack.
if(TorchExt_CUDA_TOOLKIT)
  # Quiet, and never another than the entry's: CUDAToolkit_ROOT is pinned.
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::toolkit AND NOT TARGET CUDA::nvToolsExt)
    # NVTX 3 is headers only; the library is gone from CUDA 12.9 on, while the CMake files of older torch releases, and
    # of projects after them, still name the target (https://github.com/vllm-project/vllm/issues/20892).
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    set_property(TARGET CUDA::nvToolsExt PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}")
    set_property(TARGET CUDA::nvToolsExt PROPERTY INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  endif()
endif()
