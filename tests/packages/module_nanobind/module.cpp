#include <nanobind/nanobind.h>

NB_MODULE(module_nanobind, m) {
  m.def("answer", [] { return 42; });
}
