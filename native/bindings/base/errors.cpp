// The errors of the core as exceptions of holdfast.errors.
#include "bindings/base/errors.hpp"

namespace holdfast::bindings {

PyObject* error_class(const char* name) {
    static PyObject* module = nullptr;
    if (module == nullptr) module = PyImport_ImportModule("holdfast.errors");
    if (module == nullptr) return nullptr;
    PyObject* found = PyObject_GetAttrString(module, name);
    Py_XDECREF(found);  // the module keeps it
    return found;
}

void raise(const char* class_name, const std::string& words) {
    if (PyObject* type = error_class(class_name)) PyErr_SetString(type, words.c_str());
}

void raise(const Error& error) {
    const char* name = "HoldfastError";
    int number = error.system_errno;
    switch (error.code) {
        case Code::exists:
            name = "Exists";
            if (number == 0) number = EEXIST;
            break;
        case Code::not_found:
            name = "NotFound";
            if (number == 0) number = ENOENT;
            break;
        case Code::no_space:
            name = "NoSpace";
            if (number == 0) number = ENOSPC;
            break;
        case Code::denied:
            name = "Denied";
            if (number == 0) number = EACCES;
            break;
        case Code::layout_mismatch:
            name = "LayoutMismatch";
            break;
        case Code::corrupt:
            name = "Corrupt";
            break;
        case Code::stale:
            name = "Stale";
            break;
        case Code::misuse:
        case Code::too_large:
            name = "Misuse";
            break;
        case Code::too_many_participants:
            name = "TooManyParticipants";
            break;
        case Code::unsupported:
            name = "Unsupported";
            break;
        case Code::full:
            name = "Full";
            break;
        case Code::empty:
            name = "Empty";
            break;
        case Code::timeout:
            name = "Timeout";
            break;
        case Code::closed:
            name = "Closed";
            break;
        case Code::peer_died:
            name = "PeerDied";
            break;
        case Code::exhausted:
        case Code::io:
            break;
    }
    PyObject* type = error_class(name);
    if (type == nullptr) return;
    PyObject* raised = PyObject_CallFunction(type, "s", error.what());
    if (raised == nullptr) return;
    if (number != 0 && PyObject_IsInstance(raised, PyExc_OSError) == 1) {
        PyObject* value = PyLong_FromLong(number);
        if (value == nullptr || PyObject_SetAttrString(raised, "errno", value) < 0) PyErr_Clear();
        Py_XDECREF(value);
    }
    PyErr_SetObject(type, raised);
    Py_DECREF(raised);
}

}  // namespace holdfast::bindings
