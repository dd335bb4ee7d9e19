#include <ATen/core/Tensor.h>
#include <torch/library.h>

at::Tensor thrice(const at::Tensor& x) { return x.add(x).add(x); }

TORCH_LIBRARY(torch_ext_modules, m) { m.def("thrice(Tensor x) -> Tensor", &thrice); }
