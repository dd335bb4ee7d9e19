# The imported targets of find_package(Torch), by the names that torch's own package gives them.

# The definitions that a torch build hands to its users (USE_DISTRIBUTED, USE_C10D_NCCL …) decide what its headers
# declare; the release's own CMake files are the one place that says them.
function(_torch_ext_definitions target output)
  set(found "")
  set(file "${TorchExt_REAL_PREFIX}/share/cmake/Caffe2/Caffe2Targets.cmake")
  if(EXISTS "${file}")
    file(READ "${file}" text)
    if(text MATCHES "set_target_properties\\(${target} PROPERTIES[^)]*INTERFACE_COMPILE_DEFINITIONS \"([A-Za-z0-9_;=]*)\"")
      set(found "${CMAKE_MATCH_1}")
    endif()
  endif()
  set(${output} "${found}" PARENT_SCOPE)
endfunction()

# What makes the entry's torch the oldest one for sources on the stable ABI; a target with its own version keeps that
# (TorchExtFinish.cmake).
set(_torch_ext_stable "")
foreach(_torch_ext_definition IN LISTS TorchExt_STABLE_DEFINITIONS)
  if(_torch_ext_definition MATCHES "^TORCH_TARGET_VERSION=")
    set(_torch_ext_definition "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:TORCH_EXT_OWN_TARGET_VERSION>>>:${_torch_ext_definition}>")
  endif()
  list(APPEND _torch_ext_stable "${_torch_ext_definition}")
endforeach()

function(_torch_ext_import name)
  if(NOT TARGET ${name})
    add_library(${name} SHARED IMPORTED)
    set_target_properties(${name} PROPERTIES
      IMPORTED_LOCATION "${TorchExt_LIBRARY_DIR}/lib${name}.so"
      IMPORTED_SONAME "lib${name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${TorchExt_INCLUDE_DIRS}"
      INTERFACE_COMPILE_FEATURES "cxx_std_${TorchExt_CXX_STANDARD}"
      INTERFACE_COMPILE_OPTIONS "-D_GLIBCXX_USE_CXX11_ABI=${TorchExt_CXX11_ABI}")
    if(TorchExt_STABLE_ABI)
      set_target_properties(${name} PROPERTIES INTERFACE_COMPILE_DEFINITIONS "${_torch_ext_stable}")
    endif()
    # What is linked against are stubs, whichever SDK it is, and stubs export nothing: `-z defs`, and programs, would
    # otherwise fail at names that the real libraries have. What is truly missing is found by the audit.
    set_target_properties(${name} PROPERTIES INTERFACE_LINK_OPTIONS "LINKER:--unresolved-symbols=ignore-all")
  endif()
endfunction()

# What links `file` in the linker's state `how` (as-needed, no-as-needed).
function(_torch_ext_linked output how file)
  # One item, so that CMake keeps the order; not by -Wl, which would cut a path at its commas.
  set(${output} "-Xlinker --push-state -Xlinker --${how} \"${file}\" -Xlinker --pop-state" PARENT_SCOPE)
endfunction()

# A target that links `name` even where the linker runs as-needed: operators register themselves when the library
# is opened, so no symbol of it has to be used, and a stub has none.
function(_torch_ext_keep name)
  if(NOT TARGET ${name}_library)
    add_library(${name}_library INTERFACE IMPORTED)
    set(how no-as-needed ${ARGN})
    list(GET how -1 how)
    _torch_ext_linked(link ${how} "$<TARGET_FILE:${name}>")
    set_target_properties(${name}_library PROPERTIES
      INTERFACE_LINK_LIBRARIES "${link};$<TARGET_PROPERTY:${name},INTERFACE_LINK_LIBRARIES>"
      INTERFACE_LINK_OPTIONS "$<TARGET_PROPERTY:${name},INTERFACE_LINK_OPTIONS>"
      INTERFACE_COMPILE_FEATURES "cxx_std_${TorchExt_CXX_STANDARD}"
      INTERFACE_COMPILE_DEFINITIONS "$<TARGET_PROPERTY:${name},INTERFACE_COMPILE_DEFINITIONS>"
      INTERFACE_COMPILE_OPTIONS "$<TARGET_PROPERTY:${name},INTERFACE_COMPILE_OPTIONS>"
      INTERFACE_INCLUDE_DIRECTORIES "$<TARGET_PROPERTY:${name},INTERFACE_INCLUDE_DIRECTORIES>"
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "$<TARGET_PROPERTY:${name},INTERFACE_INCLUDE_DIRECTORIES>")
  endif()
endfunction()

function(_torch_ext_bundle name)
  if(NOT TARGET ${name})
    add_library(${name} INTERFACE IMPORTED)
    set_target_properties(${name} PROPERTIES INTERFACE_LINK_LIBRARIES "${ARGN}")
  endif()
endfunction()

_torch_ext_import(c10)
_torch_ext_keep(c10)
_torch_ext_import(torch_cpu)
_torch_ext_definitions(torch_cpu _torch_ext_found)
set_property(TARGET torch_cpu APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS ${_torch_ext_found})
set_property(TARGET torch_cpu PROPERTY INTERFACE_LINK_LIBRARIES c10_library)
_torch_ext_keep(torch_cpu)
_torch_ext_import(torch)
set_property(TARGET torch PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu_library)
_torch_ext_keep(torch)
_torch_ext_bundle(Torch::Torch torch torch_library)

# What an extension module needs besides: the casters of at::Tensor, and the headers of the entry's Python.
_torch_ext_import(torch_python)
set_property(TARGET torch_python PROPERTY INTERFACE_LINK_LIBRARIES torch)
set_property(TARGET torch_python PROPERTY INTERFACE_INCLUDE_DIRECTORIES
  "${TorchExt_INCLUDE_DIRS};${TorchExt_PYTHON_INCLUDE_DIR}")
_torch_ext_keep(torch_python)
_torch_ext_bundle(Torch::Python torch_python torch_library)

# For sources on the stable ABI. torch enforces it from 2.10; before that there is no such target.
if(TorchExt_STABLE_DEFINITIONS AND NOT TARGET torch_stable)
  _torch_ext_bundle(torch_stable torch torch_library)
  set_property(TARGET torch_stable PROPERTY INTERFACE_COMPILE_DEFINITIONS "${_torch_ext_stable}")
endif()
