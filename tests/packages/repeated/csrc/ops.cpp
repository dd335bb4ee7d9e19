#include <ATen/core/Tensor.h>
#include <torch/library.h>

int both(int value);

static at::Tensor again(const at::Tensor& x) {
  TORCH_CHECK(x.dim() > 0, "at ", __FILE__);
  return x.mul(both(static_cast<int>(x.dim())));
}

TORCH_LIBRARY(torch_ext_repeated, m) { m.def("again(Tensor x) -> Tensor", &again); }
