/* A Python module with a class, whose types can be registered only once in a process, as pybind11's. */
#include <Python.h>

static int registered = 0;
static PyType_Slot slots[] = {{Py_tp_doc, "A point."}, {0, NULL}};
static PyType_Spec spec = {MODULE_PACKAGE "._C.Point", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__C(void) {
  if (registered++) {
    PyErr_SetString(PyExc_ImportError, "generic_type: type \"Point\" is already registered!");
    return NULL;
  }
  PyObject *module = PyModule_Create(&definition);
  PyObject *point = PyType_FromSpec(&spec);
  if (module && point && PyModule_AddObject(module, "Point", point) == 0) return module;
  return NULL;
}
