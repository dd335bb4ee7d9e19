#include <Python.h>

extern "C" const char* embedded_version() { return Py_GetVersion(); }
