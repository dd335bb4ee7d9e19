// A Python module, by the pybind11 that torch brings: one build for each torch and each Python.
#include <torch/extension.h>

namespace {

std::int64_t count_zeros(const at::Tensor& tensor) {
  return tensor.numel() - at::count_nonzero(tensor).item<std::int64_t>();
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("count_zeros", &count_zeros, "Return how many elements of a tensor are zero.", pybind11::arg("tensor"));
}
