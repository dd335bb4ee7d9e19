# Included by the first project() call (see TorchExtBefore.cmake), before any language is enabled.
include_guard(GLOBAL)
cmake_policy(PUSH)
cmake_policy(VERSION 3.26) # ours, whatever the project asks for
include("${CMAKE_CURRENT_LIST_DIR}/TorchExtFinish.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/TorchExtCuda.cmake")

# Sentences for the user; the build that started CMake passes them on.
function(torch_ext_note text)
  message(STATUS "hatch-torch-ext: ${text}")
  file(APPEND "${CMAKE_BINARY_DIR}/torch_ext_notes.txt" "${text}\n")
endfunction()

if(CMAKE_VERSION VERSION_GREATER_EQUAL "4.0" AND CMAKE_MINIMUM_REQUIRED_VERSION VERSION_LESS "3.5")
  torch_ext_note(
    "the project asks for CMake ${CMAKE_MINIMUM_REQUIRED_VERSION}, below the oldest that CMake ${CMAKE_VERSION} still imitates; built as if it required 3.5. Raise cmake_minimum_required to 3.5 or newer")
endif()

# Paths of this machine are kept out of every object: two builds in different folders give the same bytes.
# Directory options, not CMAKE_CXX_FLAGS: projects overwrite those.
foreach(_torch_ext_map IN LISTS TorchExt_PREFIX_MAP)
  foreach(_torch_ext_option IN ITEMS C,GNU,Clang CXX,GNU,Clang ASM,GNU,Clang OBJC,GNU,Clang OBJCXX,GNU,Clang Fortran,GNU)
    add_compile_options("$<$<COMPILE_LANG_AND_ID:${_torch_ext_option}>:-ffile-prefix-map=${_torch_ext_map}>")
  endforeach()
endforeach()
foreach(_torch_ext_map IN LISTS TorchExt_CUDA_PREFIX_MAP)
  string(REPLACE "," "\\," _torch_ext_option "-ffile-prefix-map=${_torch_ext_map}") # nvcc parts options at commas
  if(_torch_ext_option MATCHES " ")
    set(_torch_ext_option "\"${_torch_ext_option}\"") # nvcc pastes it into a shell's command as it is
  endif()
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=${_torch_ext_option}>")
endforeach()
unset(_torch_ext_map)
unset(_torch_ext_option)

if(TorchExt_ANSWER_TORCH)
  # What of the arguments of find_package says which version, and how it may fail.
  function(_torch_ext_request output)
    set(kept "")
    foreach(argument IN LISTS ARGN)
      if(argument MATCHES "^(EXACT|QUIET|REQUIRED)$")
        list(APPEND kept "${argument}")
      elseif(argument STREQUAL "${ARGV1}" AND argument MATCHES "^[0-9]")
        list(APPEND kept "${argument}")
      endif()
    endforeach()
    set(${output} "${kept}" PARENT_SCOPE)
  endfunction()

  # A FindTorch.cmake of the project's own is left to answer: its variables are its own.
  macro(_torch_ext_answer _torch_ext_package)
    set(_torch_ext_own FALSE)
    if(NOT "${ARGN}" MATCHES "(^|;)(CONFIG|NO_MODULE)(;|$)")
      foreach(_torch_ext_folder IN LISTS CMAKE_MODULE_PATH)
        if(EXISTS "${_torch_ext_folder}/Find${_torch_ext_package}.cmake")
          set(_torch_ext_own TRUE)
        endif()
      endforeach()
    endif()
    if(NOT _torch_ext_own)
      # Where to look is not the project's to say: a request that ours refuses (a version) must not end at torch's own.
      _torch_ext_request(_torch_ext_arguments ${ARGN})
      set(${_torch_ext_package}_DIR "${TorchExt_PACKAGE_DIR}/${_torch_ext_package}")
      find_package(${_torch_ext_package} ${_torch_ext_arguments} CONFIG NO_DEFAULT_PATH BYPASS_PROVIDER)
    endif()
  endmacro()
else()
  # torch's own package answers; only what it takes for granted of the toolkit is put there first.
  macro(_torch_ext_answer _torch_ext_package)
    include("${TorchExt_PACKAGE_DIR}/TorchExtToolkit.cmake")
  endmacro()
endif()

# A dependency provider, because Torch_DIR in the cache yields to `set(Torch_DIR …)`, which projects do with what they
# got from Python. What is not torch is left to the author's own provider, where there is one.
macro(torch_ext_provide_dependency _torch_ext_method _torch_ext_name)
  if("${_torch_ext_method}" STREQUAL "FIND_PACKAGE" AND "${_torch_ext_name}" MATCHES "^(Torch|Caffe2)$")
    _torch_ext_answer(${_torch_ext_name} ${ARGN})
  elseif("${_torch_ext_method}" IN_LIST TorchExt_OTHER_METHODS)
    cmake_language(CALL ${TorchExt_OTHER_PROVIDER} "${_torch_ext_method}" "${_torch_ext_name}" ${ARGN})
  endif()
endmacro()
cmake_language(SET_DEPENDENCY_PROVIDER torch_ext_provide_dependency SUPPORTED_METHODS FIND_PACKAGE)

cmake_language(DEFER CALL torch_ext_finish)

cmake_policy(POP)
