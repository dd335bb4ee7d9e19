#include <pybind11/pybind11.h>

#ifndef MODULE_NAME
#define MODULE_NAME module_bundled
#endif

PYBIND11_MODULE(MODULE_NAME, m) {
  m.def("answer", [] { return 42; });
}
