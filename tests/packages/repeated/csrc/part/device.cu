#include <cuda_runtime.h>

#include <cassert>

static __global__ void checked(const float* values, int count) {
  assert(values != nullptr);
  if (threadIdx.x >= count) __trap();
}

int check(const float* values, int count) {
  checked<<<1, 32>>>(values, count);
  return static_cast<int>(cudaGetLastError());
}
