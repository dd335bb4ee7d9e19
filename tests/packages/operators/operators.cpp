// An operator and a class, registered the way that torch's tutorials do it.
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>
#include <torch/library.h>

namespace {

at::Tensor twice(const at::Tensor& x) { return x.add(x); }

struct Counter : torch::CustomClassHolder {
  int64_t count = 0;
  int64_t next() { return ++count; }
};

}  // namespace

TORCH_LIBRARY(hte_operators, m) {
  m.def("twice(Tensor x) -> Tensor", &twice);
  m.class_<Counter>("Counter").def(torch::init<>()).def("next", &Counter::next);
}
