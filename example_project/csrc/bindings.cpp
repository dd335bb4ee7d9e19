// The operators and their CPU kernels, on torch's C++ API: one build for each torch release.
#include "kernels.h"
#include "shapes.h"

// Instead of ATen/ATen.h and torch/extension.h, which take much longer to compile.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace torch_ext_example {
namespace {

bool supported(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

at::Tensor farthest_point_sampling(const at::Tensor& points, std::int64_t k) {
  const auto shape = farthest_points(points.sizes().vec(), k, supported(points.scalar_type()));
  at::Tensor picks = at::empty(shape.result, points.options().dtype(at::kLong));
  if (points.scalar_type() == at::kDouble) {
    farthest_point_sampling_cpu(points.contiguous().const_data_ptr<double>(), shape.batch, shape.points, shape.dim,
                                shape.picks, picks.mutable_data_ptr<std::int64_t>());
  } else {
    farthest_point_sampling_cpu(points.to(at::kFloat).contiguous().const_data_ptr<float>(), shape.batch, shape.points,
                                shape.dim, shape.picks, picks.mutable_data_ptr<std::int64_t>());
  }
  return picks;
}

at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) {
  const auto shape = squared_distances(a.sizes().vec(), b.sizes().vec(), supported(a.scalar_type()),
                                       a.scalar_type() == b.scalar_type() && a.device() == b.device());
  const auto type = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor left = a.to(type).contiguous();
  const at::Tensor right = b.to(type).contiguous();
  at::Tensor out = at::empty(shape.result, left.options());
  if (type == at::kDouble) {
    squared_distance_cpu(left.const_data_ptr<double>(), right.const_data_ptr<double>(), shape.batch, shape.rows,
                         shape.columns, shape.dim, out.mutable_data_ptr<double>());
  } else {
    squared_distance_cpu(left.const_data_ptr<float>(), right.const_data_ptr<float>(), shape.batch, shape.rows,
                         shape.columns, shape.dim, out.mutable_data_ptr<float>());
  }
  return out.to(a.scalar_type());
}

}  // namespace
}  // namespace torch_ext_example

TORCH_LIBRARY(torch_ext_example, library) {
  library.def("farthest_point_sampling(Tensor points, int k) -> Tensor");
  library.def("squared_distance(Tensor a, Tensor b) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_ext_example, CPU, library) {
  library.impl("farthest_point_sampling", &torch_ext_example::farthest_point_sampling);
  library.impl("squared_distance", &torch_ext_example::squared_distance);
}
