# The targets of a CUDA torch. The toolkit is optional: an extension without CUDA sources needs none.

include("${CMAKE_CURRENT_LIST_DIR}/TorchExtToolkit.cmake")

if(TorchExt_CUDA_ENABLE AND "${CMAKE_CURRENT_FUNCTION}" STREQUAL "")
  # As torch's own package does, so that projects list .cu files without asking for the language.
  enable_language(CUDA)
endif()

# C++ sees the headers of the toolkit that compiles the kernels, where its minor is not torch's; torch's wheels have the rest.
set(_torch_ext_cuda_folders ${CUDAToolkit_INCLUDE_DIRS} ${TorchExt_CUDA_INCLUDE_DIRS})
_torch_ext_import(c10_cuda)
set_property(TARGET c10_cuda APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${_torch_ext_cuda_folders})
set_property(TARGET c10_cuda PROPERTY INTERFACE_LINK_LIBRARIES c10_library)
# torch's own package puts them into CMAKE_CUDA_FLAGS: headers and kernels that were written with it need them.
set_property(TARGET c10_cuda APPEND PROPERTY INTERFACE_COMPILE_OPTIONS
  "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--expt-relaxed-constexpr;--expt-extended-lambda>")
if(TARGET CUDA::cudart)
  # The shared runtime: torch's streams and contexts live in that one.
  get_target_property(_torch_ext_runtime CUDA::cudart IMPORTED_LOCATION)
  _torch_ext_linked(_torch_ext_runtime as-needed "${_torch_ext_runtime}")
  set_property(TARGET c10_cuda APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${_torch_ext_runtime}")
endif()

_torch_ext_import(torch_cuda)
_torch_ext_definitions(torch_cuda _torch_ext_found)
set_property(TARGET torch_cuda APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS ${_torch_ext_found})
set_property(TARGET torch_cuda APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${_torch_ext_cuda_folders})
set_property(TARGET torch_cuda PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu_library c10_cuda_library)
# As needed: what a file really uses of CUDA is set from its symbols when it is repaired, and a library that uses nothing of
# it is the same bytes as one that was linked against a torch for the CPU.
_torch_ext_keep(c10_cuda as-needed)
_torch_ext_keep(torch_cuda as-needed)
set_property(TARGET torch PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu_library torch_cuda_library)
