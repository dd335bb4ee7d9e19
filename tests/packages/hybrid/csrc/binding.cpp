// On torch's C++ API: for one release.
#include "kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

static at::Tensor twice_cpu(const at::Tensor& x) {
  const at::Tensor in = x.contiguous();
  at::Tensor out = at::empty_like(in);
  twice(in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel());
  return out;
}

TORCH_LIBRARY(torch_ext_hybrid, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(torch_ext_hybrid, CPU, m) { m.impl("twice", &twice_cpu); }
