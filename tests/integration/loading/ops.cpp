// Two operators' worth of torch: one operator, one class that can be pickled and copied.
#include <torch/custom_class.h>
#include <torch/library.h>

namespace {

at::Tensor twice(const at::Tensor& x) { return x.add(x); }

struct Counter : torch::CustomClassHolder {
  int64_t value;
  explicit Counter(int64_t start) : value(start) {}
  int64_t increment() { return ++value; }
};

}  // namespace

TORCH_LIBRARY(loading_ops, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.impl("twice", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(twice));
  m.class_<Counter>("Counter")
      .def(torch::init<int64_t>())
      .def("increment", &Counter::increment)
      .def_pickle(
          [](const c10::intrusive_ptr<Counter>& self) { return self->value; },
          [](int64_t value) { return c10::make_intrusive<Counter>(value); });
}
