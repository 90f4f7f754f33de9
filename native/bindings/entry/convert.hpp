// Small translations between the core's views and Python's objects, shared by the bindings of the broker.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <string_view>

#include "holdfast/base/base64.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast::bindings {

inline PyObject* to_bytes(std::string_view bytes) {
    return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

// Returns text from outside. Bytes that are not UTF-8 become lone surrogates, so that a name never makes a message
// unreadable.
inline PyObject* to_text(std::string_view bytes) {
    return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                                "surrogateescape");
}

inline std::string_view view_of_bytes(PyObject* bytes) {
    return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// Returns a key: text, or bytes where the producer gave bytes; None for a message without a key.
inline PyObject* to_key(const MessageFields& fields) {
    if (!fields.has_key || fields.null_key) Py_RETURN_NONE;
    std::string decoded;
    if (fields.key_base64 && from_base64(fields.partition_key, decoded)) return to_bytes(decoded);
    return to_text(fields.partition_key);
}

inline PyObject* to_ordering_key(const MessageFields& fields) {
    if (!fields.has_ordering_key) Py_RETURN_NONE;
    return to_bytes(fields.ordering_key);
}

// A new dict; null with an exception set.
inline PyObject* to_properties(std::string_view metadata, u32 field) {
    PyObject* out = PyDict_New();
    if (out == nullptr) return nullptr;
    bool failed = false;
    each_property(metadata, field, [&](std::string_view key, std::string_view value) {
        if (failed) return;
        PyObject* name = to_text(key);
        PyObject* text = to_text(value);
        failed = name == nullptr || text == nullptr || PyDict_SetItem(out, name, text) < 0;
        Py_XDECREF(name);
        Py_XDECREF(text);
    });
    if (failed) Py_CLEAR(out);
    return out;
}

// Sixteen bytes as they stand in files.
inline Incarnation to_incarnation(std::string_view bytes) {
    if (bytes.size() != sizeof(Incarnation))
        throw Error(Code::misuse,
                    "an incarnation has 16 bytes, not " + std::to_string(bytes.size()));
    Incarnation out;
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
}

}  // namespace holdfast::bindings
