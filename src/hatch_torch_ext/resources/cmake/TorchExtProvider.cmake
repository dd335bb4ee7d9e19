# Our dependency provider, which answers find_package(Torch). CMake has only one, the last that is set: where a file of the
# author's sets one (Conan's does), ours comes before it and passes on what is not torch. CMake has no name of it to ask for:
# it is read from the file. One that no file names in plain words stays as it is; Torch_DIR in the cache then leads to our package.
include_guard(GLOBAL)
cmake_policy(PUSH)
cmake_policy(VERSION 3.26) # ours, whatever the project asks for
foreach(_torch_ext_file IN LISTS CMAKE_PROJECT_TOP_LEVEL_INCLUDES)
  get_filename_component(_torch_ext_folder "${_torch_ext_file}" DIRECTORY)
  if(EXISTS "${_torch_ext_file}" AND NOT "${_torch_ext_folder}" STREQUAL "${TorchExt_PACKAGE_DIR}")
    file(READ "${_torch_ext_file}" _torch_ext_text)
    if(_torch_ext_text MATCHES "SET_DEPENDENCY_PROVIDER[ \t\r\n]+\"?([A-Za-z_][A-Za-z0-9_]*)\"?([^)]*)\\)" AND COMMAND "${CMAKE_MATCH_1}")
      set(TorchExt_OTHER_PROVIDER "${CMAKE_MATCH_1}")
      string(REGEX MATCHALL "FIND_PACKAGE|FETCHCONTENT_MAKEAVAILABLE_SERIAL" TorchExt_OTHER_METHODS "${CMAKE_MATCH_2}")
    endif()
  endif()
endforeach()
unset(_torch_ext_file)
unset(_torch_ext_folder)
unset(_torch_ext_text)
if(TorchExt_OTHER_PROVIDER)
  set(_torch_ext_methods FIND_PACKAGE ${TorchExt_OTHER_METHODS})
  list(REMOVE_DUPLICATES _torch_ext_methods)
  cmake_language(SET_DEPENDENCY_PROVIDER torch_ext_provide_dependency SUPPORTED_METHODS ${_torch_ext_methods})
  unset(_torch_ext_methods)
endif()

cmake_policy(POP)
