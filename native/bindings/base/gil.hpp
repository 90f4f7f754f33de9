// Release of the GIL, also while the interpreter is being finalised.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace holdfast::bindings {

// Other threads run while this object lives.
//
// CPython before 3.14 ends a daemon thread that wants the GIL back while the interpreter is being finalised. It calls
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

inline constexpr std::size_t kLargeCopy = 64u << 10;

// Runs a step that copies `bytes`, without the GIL if they are many. The step must not touch Python or state that other
// threads change.
struct CopyWithoutGil {
    template <class Step>
    void operator()(std::uint64_t bytes, Step&& step) const {
        std::optional<GilRelease> release;
        if (bytes >= kLargeCopy) [[unlikely]]
            release.emplace();
        step();
    }
};

}  // namespace holdfast::bindings
