// A module of the C API alone, one package deeper.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_D", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__D(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module) PyModule_AddIntConstant(module, "answer", 42);
  return module;
}
