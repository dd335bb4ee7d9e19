// A Python module, by the pybind11 that torch brings: one build for each torch and each Python.
// Instead of torch/extension.h, which takes much longer to compile.
#include <ATen/core/Tensor.h>
#include <ATen/ops/count_nonzero.h>
#include <torch/csrc/utils/pybind.h>

namespace {

std::int64_t count_zeros(const at::Tensor& tensor) {
  return tensor.numel() - at::count_nonzero(tensor).item<std::int64_t>();
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("count_zeros", &count_zeros, "Return how many elements of a tensor are zero.", pybind11::arg("tensor"));
}
