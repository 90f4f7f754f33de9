// The three clocks: one to stamp messages, one to bound waits, one to measure ages cheaply.
#pragma once

#include <time.h>

#include "holdfast/base/types.hpp"

namespace holdfast {

namespace detail {
inline u64 read_clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<u64>(now.tv_sec) * 1'000'000'000u + static_cast<u64>(now.tv_nsec);
}
}  // namespace detail

// Nanoseconds since the epoch; for people, never for proof.
inline u64 realtime_ns() {
    return detail::read_clock_ns(CLOCK_REALTIME);
}

// Nanoseconds of the clock that futex timeouts use.
inline u64 monotonic_ns() {
    return detail::read_clock_ns(CLOCK_MONOTONIC);
}

// Milliseconds of a coarse monotonic clock, the same one in all processes of a machine. All 64
// bits, because 32 bits wrap after 49 days.
inline u64 coarse_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<u64>(now.tv_sec) * 1000u + static_cast<u64>(now.tv_nsec) / 1'000'000u;
}

}  // namespace holdfast
