#include <Python.h>
PyMODINIT_FUNC PyInit__bad(void) {
  PyErr_SetString(PyExc_RuntimeError, "the extension's own words");
  return NULL;
}
