// Arguments of calls of the types that are written as plain CPython types.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>

#include "bindings/base/errors.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast::bindings {

// None: wait for ever (-1). A number of seconds else.
inline bool parse_timeout(PyObject* value, double& seconds) {
    if (value == Py_None) {
        seconds = -1;
        return true;
    }
    seconds = PyFloat_AsDouble(value);
    if (seconds == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "timeout must be None or a number of seconds, not %R",
                         value);
            return false;
        }
        if (!PyLong_Check(value) || !PyErr_ExceptionMatches(PyExc_OverflowError)) return false;
        PyErr_Clear();
        seconds = _PyLong_Sign(value) * std::numeric_limits<double>::infinity();
    }
    if (seconds >= 0) return true;
    char shown[32] = "nan";
    if (!std::isnan(seconds)) std::snprintf(shown, sizeof shown, "%g", seconds);
    raise("Misuse", std::string("timeout must be None or at least 0 seconds, not ") + shown);
    return false;
}

// The arguments of a call with `count_max` positional ones; the last of `names` is always "timeout". Missing: null.
inline bool parse(const char* call, PyObject* const* args, Py_ssize_t count, PyObject* kwnames,
                  const char* const* names, int names_count, int required, PyObject** out) {
    for (int i = 0; i < names_count; ++i) out[i] = i < count ? args[i] : nullptr;
    if (count > names_count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", call,
                     names_count, count);
        return false;
    }
    Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < keywords; ++k) {
        PyObject* name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < names_count && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) ++i;
        if (i == names_count || out[i] != nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected argument '%U'", call, name);
            return false;
        }
        out[i] = args[count + k];
    }
    for (int i = 0; i < required; ++i)
        if (out[i] == nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", call, names[i]);
            return false;
        }
    return true;
}

// A bytes-like object for the time of a call.
class Bytes {
 public:
    Bytes() = default;
    Bytes(const Bytes&) = delete;
    ~Bytes() {
        if (held_) PyBuffer_Release(&view_);
    }
    // `Payload`: pointer and size.
    template <class Payload>
    bool get(PyObject* object, Payload& payload) {
        if (PyBytes_CheckExact(object)) [[likely]] {
            payload = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(object)),
                       static_cast<u64>(PyBytes_GET_SIZE(object))};
            return true;
        }
        if (PyObject_GetBuffer(object, &view_, PyBUF_SIMPLE) < 0) return false;
        held_ = true;
        payload = {static_cast<const std::byte*>(view_.buf), static_cast<u64>(view_.len)};
        return true;
    }
    bool held() const { return held_; }  // false: of an object that is exactly bytes

 private:
    Py_buffer view_{};
    bool held_ = false;
};

inline constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

// No C++ exception passes into the interpreter.
template <auto Function>
PyObject* fast(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
    return guarded([&] { return Function(self, args, count, kwnames); }, nullptr);
}

template <auto Function>
PyObject* plain(PyObject* self, PyObject* argument) {
    return guarded([&] { return Function(self, argument); }, nullptr);
}

}  // namespace holdfast::bindings
