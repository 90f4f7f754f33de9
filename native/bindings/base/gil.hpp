// Letting go of the GIL, also while the interpreter is being finalised.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace holdfast::bindings {

// Other threads run while this object lives.
//
// A daemon thread that wants the GIL back from an interpreter that is ending is ended by CPython (before 3.14) with
// pthread_exit(), which unwinds the stack through frames that must not be unwound. Such a thread sleeps here instead,
// until the process is gone.
class GilRelease {
 public:
    GilRelease() : state_(PyEval_SaveThread()) {}
    GilRelease(const GilRelease&) = delete;
    ~GilRelease() {
        try {
            PyEval_RestoreThread(state_);
        } catch (abi::__forced_unwind&) {
            for (;;) ::pause();
        }
    }

 private:
    PyThreadState* state_;
};

}  // namespace holdfast::bindings
