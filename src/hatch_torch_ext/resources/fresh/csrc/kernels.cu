#include "kernels.h"

#include <cuda_runtime.h>

#include <stdexcept>

namespace fresh_package {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;

__global__ void muladd(const float* a, const float* b, float c, float* out, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    out[i] = a[i] * b[i] + c;
  }
}

}  // namespace

void muladd_cuda(const float* a, const float* b, float c, float* out, std::int64_t count, void* stream) {
  if (count == 0) {
    return;
  }
  const std::int64_t needed = (count + kThreads - 1) / kThreads;
  const int blocks = static_cast<int>(needed < kMostBlocks ? needed : kMostBlocks);
  muladd<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a, b, c, out, count);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

}  // namespace fresh_package
