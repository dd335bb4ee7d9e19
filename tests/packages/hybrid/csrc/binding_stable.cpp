// On torch's stable ABI: for every release from 2.10 on.
#include "kernel.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

static torch::stable::Tensor twice_cpu(const torch::stable::Tensor& x) {
  const torch::stable::Tensor in = torch::stable::contiguous(x);
  torch::stable::Tensor out = torch::stable::empty_like(in);
  twice(in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), in.numel());
  return out;
}

STABLE_TORCH_LIBRARY(torch_ext_hybrid, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(torch_ext_hybrid, CPU, m) { m.impl("twice", TORCH_BOX(&twice_cpu)); }
