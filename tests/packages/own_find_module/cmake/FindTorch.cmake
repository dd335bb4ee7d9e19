find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -c "import torch; print(torch.__path__[0])"
  OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_path(MY_TORCH_INCLUDE c10/macros/Macros.h PATHS "${folder}/include" NO_DEFAULT_PATH)
find_library(MY_TORCH_CPU torch_cpu PATHS "${folder}/lib" NO_DEFAULT_PATH)
find_library(MY_TORCH_C10 c10 PATHS "${folder}/lib" NO_DEFAULT_PATH)
find_library(MY_TORCH_PYTHON torch_python)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch DEFAULT_MSG MY_TORCH_INCLUDE MY_TORCH_CPU MY_TORCH_C10 MY_TORCH_PYTHON)
