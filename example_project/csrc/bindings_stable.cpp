// The operators and their CPU kernels, on torch's stable ABI: one build for every torch from 2.10 on.
#include "kernels.h"
#include "shapes.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace torch_ext_example {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

bool supported(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::Half ||
         type == ScalarType::BFloat16;
}

Shape sizes(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

Tensor contiguous(const Tensor& tensor, ScalarType type) {
  return torch::stable::contiguous(tensor.scalar_type() == type ? tensor : torch::stable::to(tensor, type));
}

Tensor farthest_point_sampling(const Tensor& points, std::int64_t k) {
  const auto shape = farthest_points(sizes(points), k, supported(points.scalar_type()));
  Tensor picks = torch::stable::new_empty(points, shape.result, ScalarType::Long);
  if (points.scalar_type() == ScalarType::Double) {
    farthest_point_sampling_cpu(contiguous(points, ScalarType::Double).const_data_ptr<double>(), shape.batch,
                                shape.points, shape.dim, shape.picks, picks.mutable_data_ptr<std::int64_t>());
  } else {
    farthest_point_sampling_cpu(contiguous(points, ScalarType::Float).const_data_ptr<float>(), shape.batch,
                                shape.points, shape.dim, shape.picks, picks.mutable_data_ptr<std::int64_t>());
  }
  return picks;
}

Tensor squared_distance(const Tensor& a, const Tensor& b) {
  const auto shape = squared_distances(sizes(a), sizes(b), supported(a.scalar_type()),
                                       a.scalar_type() == b.scalar_type() && a.device() == b.device());
  const auto type = a.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  const Tensor left = contiguous(a, type);
  const Tensor right = contiguous(b, type);
  Tensor out = torch::stable::new_empty(left, shape.result);
  if (type == ScalarType::Double) {
    squared_distance_cpu(left.const_data_ptr<double>(), right.const_data_ptr<double>(), shape.batch, shape.rows,
                         shape.columns, shape.dim, out.mutable_data_ptr<double>());
  } else {
    squared_distance_cpu(left.const_data_ptr<float>(), right.const_data_ptr<float>(), shape.batch, shape.rows,
                         shape.columns, shape.dim, out.mutable_data_ptr<float>());
  }
  return contiguous(out, a.scalar_type());
}

}  // namespace
}  // namespace torch_ext_example

STABLE_TORCH_LIBRARY(torch_ext_example, library) {
  library.def("farthest_point_sampling(Tensor points, int k) -> Tensor");
  library.def("squared_distance(Tensor a, Tensor b) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(torch_ext_example, CPU, library) {
  library.impl("farthest_point_sampling", TORCH_BOX(&torch_ext_example::farthest_point_sampling));
  library.impl("squared_distance", TORCH_BOX(&torch_ext_example::squared_distance));
}
