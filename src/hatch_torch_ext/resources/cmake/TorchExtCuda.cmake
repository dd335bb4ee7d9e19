# Holds a project to the entry's CUDA architectures: what is compiled equals the configuration, whatever the project
# sets. Included before the first language is enabled; does nothing for an entry without a toolkit.
#
# Given: TorchExt_CUDA_ARCHITECTURES (CMake's notation), TorchExt_CUDA_GENCODE and TorchExt_CUDA_FLAGS (nvcc's arguments).
# A source whose own properties name an architecture keeps it, where its target says CUDA_ARCHITECTURES OFF: that is how
# kernels are written which only one architecture can compile.
include_guard(GLOBAL)
if(NOT TorchExt_CUDA_ARCHITECTURES)
  return()
endif()

# Every way to name an architecture on nvcc's command line, with its value.
set(_TorchExt_ARCH_FLAG "(-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code)([= ;]+)[^ ;>\"]+")

function(_torch_ext_without_archs text output)
  string(REGEX REPLACE "(^|[ ;:\"])${_TorchExt_ARCH_FLAG}" "\\1" text "${text}")
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# Runs in the scope of whoever changed the variable.
macro(_torch_ext_cuda_changed _torch_ext_name _torch_ext_access)
  if("${_torch_ext_access}" STREQUAL "MODIFIED_ACCESS")
    if("${_torch_ext_name}" STREQUAL "CMAKE_CUDA_ARCHITECTURES")
      if(NOT "${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "${TorchExt_CUDA_ARCHITECTURES}")
        set(CMAKE_CUDA_ARCHITECTURES "${TorchExt_CUDA_ARCHITECTURES}")
      endif()
    elseif("${_torch_ext_name}" STREQUAL "TORCH_CUDA_ARCH_LIST")
      # Only read by torch's own functions, which answer with ours.
    else()
      _torch_ext_without_archs("${${_torch_ext_name}}" _torch_ext_text)
      if("${_torch_ext_name}" STREQUAL "CUDA_NVCC_FLAGS")
        list(APPEND _torch_ext_text ${TorchExt_CUDA_GENCODE})
      endif()
      if(NOT "${_torch_ext_text}" STREQUAL "${${_torch_ext_name}}")
        set(${_torch_ext_name} "${_torch_ext_text}")
      endif()
    endif()
  endif()
endmacro()

if(DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${TorchExt_CUDA_ARCHITECTURES}")
endif()
set(_TorchExt_CUDA_FLAG_VARIABLES CMAKE_CUDA_FLAGS)
foreach(_torch_ext_type IN ITEMS DEBUG RELEASE RELWITHDEBINFO MINSIZEREL)
  list(APPEND _TorchExt_CUDA_FLAG_VARIABLES CMAKE_CUDA_FLAGS_${_torch_ext_type})
endforeach()
unset(_torch_ext_type)
foreach(_torch_ext_variable IN ITEMS CMAKE_CUDA_ARCHITECTURES CUDA_NVCC_FLAGS ${_TorchExt_CUDA_FLAG_VARIABLES})
  variable_watch(${_torch_ext_variable} _torch_ext_cuda_changed)
endforeach()
unset(_torch_ext_variable)

# What older projects call to turn a list of architectures into flags: the answer is the configuration's.
macro(torch_ext_cuda_answers)
  function(torch_cuda_get_nvcc_gencode_flag output)
    set(${output} "${TorchExt_CUDA_GENCODE}" PARENT_SCOPE)
  endfunction()
  function(cuda_select_nvcc_arch_flags output)
    set(${output} "${TorchExt_CUDA_GENCODE}" PARENT_SCOPE)
    set(${output}_readable "${TORCH_CUDA_ARCH_LIST}" PARENT_SCOPE)
  endfunction()
endmacro()
torch_ext_cuda_answers()

# TRUE when a source of the target names an architecture in its own properties.
function(_torch_ext_sources_choose target output)
  set(${output} FALSE PARENT_SCOPE)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cu$" AND NOT source MATCHES "^\\$<")
      foreach(property IN ITEMS COMPILE_OPTIONS COMPILE_FLAGS)
        get_property(written SOURCE "${source}" TARGET_DIRECTORY ${target} PROPERTY ${property})
        if(written MATCHES "${_TorchExt_ARCH_FLAG}")
          set(${output} TRUE PARENT_SCOPE)
        endif()
      endforeach()
    endif()
  endforeach()
endfunction()

function(_torch_ext_cuda_target target)
  foreach(property IN ITEMS INTERFACE_COMPILE_OPTIONS COMPILE_OPTIONS COMPILE_FLAGS)
    get_target_property(written ${target} ${property})
    if(written MATCHES "${_TorchExt_ARCH_FLAG}")
      _torch_ext_without_archs("${written}" written)
      set_property(TARGET ${target} PROPERTY ${property} "${written}")
    endif()
  endforeach()
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^((SHARED|MODULE|STATIC|OBJECT)_LIBRARY|EXECUTABLE)$")
    return()
  endif()
  get_target_property(chosen ${target} CUDA_ARCHITECTURES)
  _torch_ext_sources_choose(${target} by_sources)
  if(by_sources AND NOT chosen)
    message(STATUS "hatch-torch-ext: target ${target} names CUDA architectures source by source; they stay")
  else()
    set_property(TARGET ${target} PROPERTY CUDA_ARCHITECTURES ${TorchExt_CUDA_ARCHITECTURES})
  endif()
  get_target_property(runtime ${target} CUDA_RUNTIME_LIBRARY)
  if(NOT runtime STREQUAL "None")
    # The shared one is torch's: two runtimes in one process do not share streams.
    set_property(TARGET ${target} PROPERTY CUDA_RUNTIME_LIBRARY Shared)
  endif()
  foreach(flag IN LISTS TorchExt_CUDA_FLAGS)
    set_property(TARGET ${target} APPEND PROPERTY COMPILE_OPTIONS "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:${flag}>")
  endforeach()
endfunction()

# A flag variable that was set where no watch sees it (the cache, a function's parent) would win in silence.
function(_torch_ext_cuda_directory directory)
  foreach(variable IN LISTS _TorchExt_CUDA_FLAG_VARIABLES)
    get_directory_property(written DIRECTORY "${directory}" DEFINITION ${variable})
    if(written MATCHES "${_TorchExt_ARCH_FLAG}")
      message(FATAL_ERROR
        "${variable} names CUDA architectures in ${directory} (${written}), while the configuration says "
        "${TorchExt_CUDA_ARCHITECTURES}. Take them out there (CMakeLists.txt, `cmake.define`, CUDAFLAGS): the option `archs` "
        "decides")
    endif()
  endforeach()
  get_property(folders DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(folder IN LISTS folders)
    _torch_ext_cuda_directory("${folder}")
  endforeach()
endfunction()

# Called when the whole project has been read, with all its targets.
function(torch_ext_cuda_finish targets)
  foreach(target IN LISTS targets)
    _torch_ext_cuda_target(${target})
  endforeach()
  _torch_ext_cuda_directory("${CMAKE_SOURCE_DIR}")
endfunction()
