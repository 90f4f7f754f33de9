// Waiting from Python: the time limit of a call, its sleep, and how a type says where its bells are.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>

#include "bindings/base/gil.hpp"
#include "holdfast/base/clock.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/futex.hpp"

namespace holdfast::bindings {

// When a call began and when it has waited long enough. A timeout below 0: it waits without a limit.
struct TimeLimit {
    explicit TimeLimit(double timeout)
        : start(monotonic_ns()),
          limit(timeout < 0 || timeout > 1e9 ? ~u64{0} : start + static_cast<u64>(timeout * 1e9)) {}

    double waited_s(u64 now) const { return static_cast<double>(now - start) / 1e9; }

    u64 start, limit;
};

// Sleeps without the GIL until the bell rings. False: an exception is set, by a signal's handler.
inline bool sleep_on(const u32* bell, u32 heard, u64 ns) {
    {
        const GilRelease release;
        futex_wait(bell, heard, ns);
    }
    return PyErr_CheckSignals() == 0;
}

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
