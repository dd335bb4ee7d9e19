// The CUDA kernels of the operators, on torch's C++ API.
#include "kernels.h"
#include "shapes.h"

// Of torch's CUDA headers, only c10's: ATen/cuda/CUDAContext.h would want those of cuBLAS, cuSPARSE and cuSOLVER too.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>

namespace torch_ext_example {
namespace {

std::optional<Element> element(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Element::f32;
    case at::kDouble:
      return Element::f64;
    case at::kHalf:
      return Element::f16;
    case at::kBFloat16:
      return Element::bf16;
    default:
      return std::nullopt;
  }
}

at::Tensor farthest_point_sampling(const at::Tensor& points, std::int64_t k) {
  const auto type = element(points.scalar_type());
  const auto shape = farthest_points(points.sizes().vec(), k, type.has_value());
  const c10::cuda::CUDAGuard guard(points.device());
  const at::Tensor contiguous = points.contiguous();
  at::Tensor picks = at::empty(shape.result, points.options().dtype(at::kLong));
  // The allocator gives the memory back to this stream, so it is not reused before the kernel has run.
  const auto bytes = farthest_point_sampling_workspace(*type, shape.batch, shape.points, shape.dim);
  const at::Tensor workspace = at::empty({static_cast<std::int64_t>(bytes)}, points.options().dtype(at::kByte));
  farthest_point_sampling_cuda(*type, contiguous.const_data_ptr(), shape.batch, shape.points, shape.dim, shape.picks,
                               picks.mutable_data_ptr<std::int64_t>(), workspace.mutable_data_ptr(),
                               c10::cuda::getCurrentCUDAStream().stream());
  return picks;
}

at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) {
  const auto type = element(a.scalar_type());
  const auto shape = squared_distances(a.sizes().vec(), b.sizes().vec(), type.has_value(),
                                       a.scalar_type() == b.scalar_type() && a.device() == b.device());
  const c10::cuda::CUDAGuard guard(a.device());
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  at::Tensor out = at::empty(shape.result, a.options());
  squared_distance_cuda(*type, left.const_data_ptr(), right.const_data_ptr(), shape.batch, shape.rows, shape.columns,
                        shape.dim, out.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
  return out;
}

}  // namespace
}  // namespace torch_ext_example

TORCH_LIBRARY_IMPL(torch_ext_example, CUDA, library) {
  library.impl("farthest_point_sampling", &torch_ext_example::farthest_point_sampling);
  library.impl("squared_distance", &torch_ext_example::squared_distance);
}
