# The targets of a CUDA torch. The toolkit is optional: an extension without CUDA sources needs none.

if(TorchExt_CUDA_TOOLKIT)
  # Quiet, and never another than the entry's: CUDAToolkit_ROOT is pinned.
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::toolkit AND NOT TARGET CUDA::nvToolsExt)
    # NVTX 3 is headers only; the library is gone from CUDA 12.9 on, while files of older torch releases, and of
    # projects after them, still name the target (vllm-project/vllm#20892).
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    set_property(TARGET CUDA::nvToolsExt PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}")
    set_property(TARGET CUDA::nvToolsExt PROPERTY INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  endif()
endif()

_torch_ext_import(c10_cuda)
set_property(TARGET c10_cuda APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${TorchExt_CUDA_INCLUDE_DIRS})
set_property(TARGET c10_cuda PROPERTY INTERFACE_LINK_LIBRARIES c10_library)
if(TARGET CUDA::cudart)
  # The shared runtime: torch's streams and contexts live in that one.
  set_property(TARGET c10_cuda APPEND PROPERTY INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()

_torch_ext_import(torch_cuda)
_torch_ext_definitions(torch_cuda _torch_ext_found)
set_property(TARGET torch_cuda APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS ${_torch_ext_found})
set_property(TARGET torch_cuda APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${TorchExt_CUDA_INCLUDE_DIRS})
set_property(TARGET torch_cuda PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu_library c10_cuda_library)
_torch_ext_keep(c10_cuda)
_torch_ext_keep(torch_cuda)
set_property(TARGET torch PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu_library torch_cuda_library)
