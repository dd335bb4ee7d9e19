// The kernels know nothing of torch, so they are compiled once for every release of it.
#pragma once
#include <cstdint>

namespace fresh_package {

// out[i] = a[i] * b[i] + c for i < count
void muladd_cpu(const float* a, const float* b, float c, float* out, std::int64_t count);
// The same for device memory, on a CUDA stream (a cudaStream_t).
void muladd_cuda(const float* a, const float* b, float c, float* out, std::int64_t count, void* stream);

}  // namespace fresh_package
