# Old projects ask for Caffe2 where they mean torch: both are one package since torch 1.0.
set(FPHSA_NAME_MISMATCHED TRUE) # CMake would warn of the other name
include("${CMAKE_CURRENT_LIST_DIR}/../Torch/TorchConfig.cmake")
unset(FPHSA_NAME_MISMATCHED)
set(Caffe2_MAIN_LIBS torch_library)
set(CAFFE2_INCLUDE_DIRS "${TORCH_INCLUDE_DIRS}")
