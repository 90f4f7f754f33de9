// One access to shared state: what a process is about to do, and what it will see.
//
// The explorer schedules accesses, nothing finer and nothing coarser: between two accesses of a process the others may
// do anything, and the process may die.
#pragma once

#include <atomic>
#include <string_view>

#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"

namespace model {

using namespace holdfast;

enum class Kind : u8 {
    load,         // observes the value
    store,        //
    cas,          // observes the value found; equal to `a` means success
    fetch_add,    // observes the value found
    fetch_or,     // observes the value found
    fetch_and,    // observes the value found
    exchange,     // observes the value found
    plain_write,  // `count` plain cells from `cell` on get the values `a`, `a` + 1, ...
    plain_read,  // `count` plain cells; observes the value of the first, 0 if they are not numbered on from it
    take_byte,  // observes 1 if no process has the lock byte alone, and we share it now
    await_byte,  // ours alone; not enabled while a process has or shares it (a fresh process wants this slot)
    drop_byte,  //
    fence,      // of store buffers; without them a fence is not an access
    wake,       // all who sleep on the cell
    wait,       // sleep if the cell holds `a`; observes a Woken
    finished,   // the program is over; never executed
};

enum class Woken : u8 { woken, changed, timed_out };

struct Access {
    Kind kind = Kind::finished;
    std::memory_order order = std::memory_order_relaxed;
    u16 cell = 0;
    u16 count = 1;
    Point point{};  // the last named point that the process passed
    u64 a = 0;      // store, fetch: operand; cas, wait: expected
    u64 b = 0;      // cas: desired
};

constexpr bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst || order == std::memory_order_consume;
}

constexpr bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

constexpr std::string_view order_name(std::memory_order order) {
    switch (order) {
        case std::memory_order_relaxed:
            return "relaxed";
        case std::memory_order_consume:
            return "consume";
        case std::memory_order_acquire:
            return "acquire";
        case std::memory_order_release:
            return "release";
        case std::memory_order_acq_rel:
            return "acq_rel";
        case std::memory_order_seq_cst:
            return "seq_cst";
    }
    return "?";
}

}  // namespace model
