// The operator and its CPU kernel, on torch's C++ API: one build for each torch release.
#include "kernels.h"

// Instead of torch/extension.h and ATen/ATen.h, which take much longer to compile.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace fresh_package {
namespace {

at::Tensor muladd(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(), "muladd: a and b must have the same shape");
  TORCH_CHECK_TYPE(a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat, "muladd: a and b must be float32");
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  at::Tensor out = at::empty_like(left);
  muladd_cpu(left.const_data_ptr<float>(), right.const_data_ptr<float>(), static_cast<float>(c),
             out.mutable_data_ptr<float>(), out.numel());
  return out;
}

}  // namespace
}  // namespace fresh_package

TORCH_LIBRARY(fresh_package, library) {
  library.def("muladd(Tensor a, Tensor b, float c) -> Tensor");
}

TORCH_LIBRARY_IMPL(fresh_package, CPU, library) {
  library.impl("muladd", &fresh_package::muladd);
}
