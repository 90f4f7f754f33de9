// Waiting for several objects at once: how a type says where its bells are.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>

#include "holdfast/base/types.hpp"

namespace holdfast::bindings {

// A bell, and what keeps its mapping alive.
struct Bell {
    std::shared_ptr<void> keep;
    const u32* word;
};

// Returns the bell of an object of the type; `putting`: that of space, not of data.
using FindBell = Bell (*)(PyObject* object, bool putting);

// Lets `wait_any` take objects of this type.
void register_waitable(PyTypeObject* type, FindBell find);

}  // namespace holdfast::bindings
