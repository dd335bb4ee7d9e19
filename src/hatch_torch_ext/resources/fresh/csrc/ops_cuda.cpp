// The CUDA kernel of the operator, on torch's C++ API.
#include "kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace fresh_package {
namespace {

at::Tensor muladd(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK_VALUE(a.sizes() == b.sizes() && a.device() == b.device(),
                    "muladd: a and b must have the same shape and device");
  TORCH_CHECK_TYPE(a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat, "muladd: a and b must be float32");
  const c10::cuda::CUDAGuard guard(a.device());
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  at::Tensor out = at::empty_like(left);
  muladd_cuda(left.const_data_ptr<float>(), right.const_data_ptr<float>(), static_cast<float>(c),
              out.mutable_data_ptr<float>(), out.numel(), c10::cuda::getCurrentCUDAStream().stream());
  return out;
}

}  // namespace
}  // namespace fresh_package

TORCH_LIBRARY_IMPL(fresh_package, CUDA, library) {
  library.impl("muladd", &fresh_package::muladd);
}
