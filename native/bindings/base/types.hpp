// Helpers of the types that are written as plain CPython types.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace holdfast::bindings {

// A static type counts itself, so that no other reference is ever the last.
inline void immortalise(PyTypeObject& type) {
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
}

template <class Function>
PyCFunction method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

}  // namespace holdfast::bindings
