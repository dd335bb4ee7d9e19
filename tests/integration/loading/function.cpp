// An operator that is defined by its function alone, in a namespace that several libraries share, and a kernel of
// another one; the same file is a library, or a module with either name.
#include <Python.h>
#include <torch/library.h>

namespace {

int64_t doubled(int64_t number) { return 2 * number; }

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "module", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

TORCH_LIBRARY_FRAGMENT(loading_shared, m) { m.def("defined", &doubled); }
TORCH_LIBRARY_IMPL(loading_shared, CPU, m) { m.impl("kernels", &doubled); }

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
PyMODINIT_FUNC PyInit__D() { return PyModule_Create(&definition); }
