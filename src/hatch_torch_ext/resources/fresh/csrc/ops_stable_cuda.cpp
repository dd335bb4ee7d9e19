// The CUDA kernel of the operator, on torch's stable ABI.
#include "kernels.h"

#include <torch/csrc/stable/accelerator.h>
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
  if (a.dim() != b.dim() || !std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin()) ||
      a.get_device_index() != b.get_device_index()) {
    throw std::runtime_error("muladd: a and b must have the same shape and device");
  }
  if (a.scalar_type() != ScalarType::Float || b.scalar_type() != ScalarType::Float) {
    throw std::runtime_error("muladd: a and b must be float32");
  }
  const torch::stable::accelerator::DeviceGuard guard(a.get_device_index());
  const Tensor left = torch::stable::contiguous(a);
  const Tensor right = torch::stable::contiguous(b);
  Tensor out = torch::stable::empty_like(left);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(a.get_device_index(), &stream));
  muladd_cuda(left.const_data_ptr<float>(), right.const_data_ptr<float>(), static_cast<float>(c),
              out.mutable_data_ptr<float>(), out.numel(), stream);
  return out;
}

}  // namespace
}  // namespace fresh_package

STABLE_TORCH_LIBRARY_IMPL(fresh_package, CUDA, library) {
  library.impl("muladd", TORCH_BOX(&fresh_package::muladd));
}
