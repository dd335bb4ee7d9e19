#include <Python.h>

#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, TEXT(TORCH_EXTENSION_NAME), nullptr, -1, methods,
                                 nullptr, nullptr, nullptr, nullptr};

extern "C" __attribute__((visibility("default"))) PyObject* INIT(TORCH_EXTENSION_NAME)() {
  return PyModule_Create(&definition);
}
