#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#ifndef TORCH_TARGET_VERSION
#error "torch_stable does not say which torch is the oldest one"
#endif

int64_t dimensions(torch::stable::Tensor x) { return x.dim(); }

STABLE_TORCH_LIBRARY(hte_stable, m) { m.def("dimensions(Tensor x) -> int"); }

STABLE_TORCH_LIBRARY_IMPL(hte_stable, CompositeExplicitAutograd, m) { m.impl("dimensions", TORCH_BOX(&dimensions)); }
