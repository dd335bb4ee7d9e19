#include <cuda_runtime_api.h>

extern "C" int devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
