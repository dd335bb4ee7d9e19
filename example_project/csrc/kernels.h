// The kernels: plain functions on contiguous memory. No torch headers, so one object file fits every release of torch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_ext_example {

// points (batch, n, dim), picks (batch, k). The first pick is point 0; each next one is the point that is farthest from
// all points picked so far, the lowest index where several are. A point with a NaN or infinite coordinate is never
// picked after the first, and no other point is near it; where no point is left, 0 is picked.
template <typename T>
void farthest_point_sampling_cpu(const T* points, std::int64_t batch, std::int64_t n, std::int64_t dim, std::int64_t k,
                                 std::int64_t* picks);

// a (batch, rows, dim), b (batch, columns, dim), out (batch, rows, columns): the sum of (a - b) ** 2 over dim.
template <typename T>
void squared_distance_cpu(const T* a, const T* b, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                          std::int64_t dim, T* out);

enum class Element { f32, f64, f16, bf16 };

// Scratch memory on the device, in bytes, that farthest_point_sampling_cuda needs.
std::size_t farthest_point_sampling_workspace(Element element, std::int64_t batch, std::int64_t n, std::int64_t dim);

// The same on the current device, queued on `stream` (a cudaStream_t): nothing is allocated and nothing waits, so the
// call can be captured in a CUDA graph. Both throw std::runtime_error with CUDA's message.
void farthest_point_sampling_cuda(Element element, const void* points, std::int64_t batch, std::int64_t n,
                                  std::int64_t dim, std::int64_t k, std::int64_t* picks, void* workspace, void* stream);

void squared_distance_cuda(Element element, const void* a, const void* b, std::int64_t batch, std::int64_t rows,
                           std::int64_t columns, std::int64_t dim, void* out, void* stream);

}  // namespace torch_ext_example
