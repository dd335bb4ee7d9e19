// A module of the limited API: a function that tells which Python runs it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *python(PyObject *self, PyObject *arguments) {
  (void)self, (void)arguments;
  return PyUnicode_FromString(Py_GetVersion());
}

static PyMethodDef methods[] = {{"python", python, METH_NOARGS, "Return the version of Python."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", NULL, -1, methods};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&definition); }
