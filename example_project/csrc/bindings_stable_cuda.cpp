// The CUDA kernels of the operators, on torch's stable ABI.
#include "kernels.h"
#include "shapes.h"

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

namespace torch_ext_example {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::optional<Element> element(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return Element::f32;
    case ScalarType::Double:
      return Element::f64;
    case ScalarType::Half:
      return Element::f16;
    case ScalarType::BFloat16:
      return Element::bf16;
    default:
      return std::nullopt;
  }
}

Shape sizes(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

void* current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return stream;
}

Tensor farthest_point_sampling(const Tensor& points, std::int64_t k) {
  const auto type = element(points.scalar_type());
  const auto shape = farthest_points(sizes(points), k, type.has_value());
  const torch::stable::accelerator::DeviceGuard guard(points.get_device_index());
  const Tensor contiguous = torch::stable::contiguous(points);
  Tensor picks = torch::stable::new_empty(points, shape.result, ScalarType::Long);
  // The allocator gives the memory back to this stream, so it is not reused before the kernel has run.
  const auto bytes = farthest_point_sampling_workspace(*type, shape.batch, shape.points, shape.dim);
  const Tensor workspace =
      torch::stable::new_empty(points, Shape{static_cast<std::int64_t>(bytes)}, ScalarType::Byte);
  farthest_point_sampling_cuda(*type, contiguous.const_data_ptr(), shape.batch, shape.points, shape.dim, shape.picks,
                               picks.mutable_data_ptr<std::int64_t>(), workspace.mutable_data_ptr(),
                               current_stream(points));
  return picks;
}

Tensor squared_distance(const Tensor& a, const Tensor& b) {
  const auto type = element(a.scalar_type());
  const auto shape = squared_distances(sizes(a), sizes(b), type.has_value(),
                                       a.scalar_type() == b.scalar_type() && a.device() == b.device());
  const torch::stable::accelerator::DeviceGuard guard(a.get_device_index());
  const Tensor left = torch::stable::contiguous(a);
  const Tensor right = torch::stable::contiguous(b);
  Tensor out = torch::stable::new_empty(left, shape.result);
  squared_distance_cuda(*type, left.const_data_ptr(), right.const_data_ptr(), shape.batch, shape.rows, shape.columns,
                        shape.dim, out.mutable_data_ptr(), current_stream(a));
  return out;
}

}  // namespace
}  // namespace torch_ext_example

STABLE_TORCH_LIBRARY_IMPL(torch_ext_example, CUDA, library) {
  library.impl("farthest_point_sampling", TORCH_BOX(&torch_ext_example::farthest_point_sampling));
  library.impl("squared_distance", TORCH_BOX(&torch_ext_example::squared_distance));
}
