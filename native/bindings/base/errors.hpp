// Exceptions of holdfast.errors, raised from C++.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <new>
#include <string>

#include "holdfast/base/errors.hpp"

namespace holdfast::bindings {

PyObject* error_class(const char* name);  // borrowed
void raise(const char* class_name, const std::string& words);
void raise(const Error& error);

// Calls `body`, turning C++ exceptions into Python ones; `failed` is what to answer then.
template <class Body, class Failed>
auto guarded(Body&& body, Failed failed) -> decltype(body()) {
    try {
        return body();
    } catch (const Error& error) {
        raise(error);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return failed;
}

}  // namespace holdfast::bindings
