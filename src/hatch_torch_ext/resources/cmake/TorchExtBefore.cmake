# The first step of every project() call: puts our files around those that the author includes at the top level.
# It is CMAKE_PROJECT_INCLUDE_BEFORE, so CMAKE_PROJECT_TOP_LEVEL_INCLUDES stays the author's own, wherever it is set: in the cache,
# a preset, the project, or a toolchain file, which is read after this one.
include("${CMAKE_CURRENT_LIST_DIR}/torch_ext_facts.cmake")
foreach(_torch_ext_file IN LISTS TorchExt_INCLUDE_BEFORE) # the author's, which this one would displace
  include("${_torch_ext_file}")
endforeach()
unset(_torch_ext_file)
include_guard(GLOBAL)
if(NOT DEFINED ENV{CUDACXX}) # without a toolkit: not before, since projects take a CUDACXX for a sign of CUDA
  set(ENV{CUDACXX} "${CUDA_NVCC_EXECUTABLE}")
endif()
cmake_policy(PUSH)
cmake_policy(VERSION 3.26) # ours, whatever the project asks for

macro(_torch_ext_top_level_changed _torch_ext_name _torch_ext_access)
  if("${_torch_ext_access}" STREQUAL "MODIFIED_ACCESS")
    string(FIND "${CMAKE_PROJECT_TOP_LEVEL_INCLUDES}" "${TorchExt_PACKAGE_DIR}/TorchExtTopLevel.cmake" _torch_ext_at)
    if(_torch_ext_at LESS 0)
      set(CMAKE_PROJECT_TOP_LEVEL_INCLUDES "${TorchExt_PACKAGE_DIR}/TorchExtTopLevel.cmake"
        ${CMAKE_PROJECT_TOP_LEVEL_INCLUDES} "${TorchExt_PACKAGE_DIR}/TorchExtProvider.cmake")
    endif()
  endif()
endmacro()
variable_watch(CMAKE_PROJECT_TOP_LEVEL_INCLUDES _torch_ext_top_level_changed)
_torch_ext_top_level_changed(CMAKE_PROJECT_TOP_LEVEL_INCLUDES MODIFIED_ACCESS)

cmake_policy(POP)
