#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

static int64_t dimensions(const torch::stable::Tensor& x) { return x.dim(); }

STABLE_TORCH_LIBRARY(torch_ext_limited, m) { m.def("dimensions(Tensor x) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(torch_ext_limited, CompositeExplicitAutograd, m) {
  m.impl("dimensions", TORCH_BOX(&dimensions));
}

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_ops", nullptr, -1, nullptr};

PyMODINIT_FUNC PyInit__ops(void) { return PyModule_Create(&definition); }
