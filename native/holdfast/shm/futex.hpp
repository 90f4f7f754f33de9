// Waiting on words in shared memory. The futexes are shared (not private): waiters are other processes.
// No caller relies on a wake-up: it bounds every wait, and looks again after it.
#pragma once

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <span>

#include "holdfast/base/clock.hpp"
#include "holdfast/base/types.hpp"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449  // the same number on every architecture
#endif

namespace holdfast {

enum class Wait {
    woken,    // by a wake call, or for no reason
    changed,  // the word did not hold the expected value
    timed_out,
    interrupted,  // by a signal: let its handler run, then decide
    unsupported,  // futex_waitv only: the kernel is older than 5.16
};

namespace detail {
inline timespec to_timespec(u64 ns) {
    return {static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
}

inline Wait wait_result(long result) {
    if (result >= 0) return Wait::woken;
    switch (errno) {
        case EAGAIN:
            return Wait::changed;
        case ETIMEDOUT:
            return Wait::timed_out;
        case EINTR:
            return Wait::interrupted;
        case ENOSYS:
            return Wait::unsupported;
        default:
            return Wait::woken;  // an address gone bad: the caller's next look will tell
    }
}
}  // namespace detail

// Sleeps while *word == expected, for at most `timeout_ns`.
inline Wait futex_wait(const u32* word, u32 expected, u64 timeout_ns) {
    const timespec timeout = detail::to_timespec(timeout_ns);  // relative, CLOCK_MONOTONIC
    return detail::wait_result(
        syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0));
}

inline void futex_wake_all(u32* word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct FutexWord {
    const u32* word;
    u32 expected;
};

inline constexpr std::size_t kFutexWordsMax = 128;  // the kernel's limit

struct WaitMany {
    Wait result;
    std::size_t index;  // which word was woken; meaningless for other results
};

// Sleeps until any of the words is woken or found changed. Without kernel support the result is `unsupported` at
// once; more than kFutexWordsMax words, or none, are cut to what fits.
inline WaitMany futex_waitv(std::span<const FutexWord> words, u64 timeout_ns) {
    struct Waiter {  // struct futex_waitv of the kernel, which older headers lack
        u64 expected;
        u64 address;
        u32 flags;
        u32 reserved;
    };
    static_assert(sizeof(Waiter) == 24);
    constexpr u32 kSize32 = 2;  // FUTEX_32; shared, since FUTEX_PRIVATE_FLAG is not set
    std::array<Waiter, kFutexWordsMax> waiters;
    const std::size_t count = words.size() < kFutexWordsMax ? words.size() : kFutexWordsMax;
    for (std::size_t i = 0; i < count; ++i) {
        waiters[i] = {words[i].expected, reinterpret_cast<u64>(words[i].word), kSize32, 0};
    }
    const timespec deadline = detail::to_timespec(monotonic_ns() + timeout_ns);  // absolute here
    const long result =
        syscall(SYS_futex_waitv, waiters.data(), count, 0, &deadline, CLOCK_MONOTONIC);
    return {detail::wait_result(result), result >= 0 ? static_cast<std::size_t>(result) : 0};
}

}  // namespace holdfast
