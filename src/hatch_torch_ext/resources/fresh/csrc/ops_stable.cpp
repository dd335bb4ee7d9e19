// The operator and its CPU kernel, on torch's stable ABI: one build for every torch from 2.10 on.
#include "kernels.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <stdexcept>

namespace fresh_package {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

Tensor muladd(const Tensor& a, const Tensor& b, double c) {
  if (a.dim() != b.dim() || !std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin())) {
    throw std::runtime_error("muladd: a and b must have the same shape");
  }
  if (a.scalar_type() != ScalarType::Float || b.scalar_type() != ScalarType::Float) {
    throw std::runtime_error("muladd: a and b must be float32");
  }
  const Tensor left = torch::stable::contiguous(a);
  const Tensor right = torch::stable::contiguous(b);
  Tensor out = torch::stable::empty_like(left);
  muladd_cpu(left.const_data_ptr<float>(), right.const_data_ptr<float>(), static_cast<float>(c),
             out.mutable_data_ptr<float>(), out.numel());
  return out;
}

}  // namespace
}  // namespace fresh_package

STABLE_TORCH_LIBRARY(fresh_package, library) {
  library.def("muladd(Tensor a, Tensor b, float c) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(fresh_package, CPU, library) {
  library.impl("muladd", TORCH_BOX(&fresh_package::muladd));
}
