// The log as the other bindings see it.
#pragma once

#include <nanobind/nanobind.h>

#include "holdfast/base/file_header.hpp"
#include "holdfast/log/log.hpp"

namespace holdfast::bindings {

struct LogObject {
    LogObject(u64 next_d, u64 next_ledger, u64 time) : log(next_d, next_ledger, time) {}

    Log log;
    nanobind::object frame;  // that is being applied: the log reads from its bytes
};

Incarnation incarnation_of(const nanobind::bytes& bytes);

}  // namespace holdfast::bindings
