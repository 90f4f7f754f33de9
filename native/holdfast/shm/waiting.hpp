// Waiting for structures in shared memory, one or several. No wake-up is relied on: every sleep is bounded, and followed
// by another look.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "holdfast/base/clock.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/futex.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace holdfast {

inline constexpr u64 kProbeBlockedNs =
    500'000;  // behind a named owner: how soon its death is noticed
inline constexpr u64 kProbeIdleNs =
    50'000'000;  // nothing in the way: every wait is bounded all the same

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits without the kernel until `look()` finds a reason to try, or until the time `until`. `look_ns`: pauses between
// looks, where looking slows the other side down.
template <class Look>
void spin_until(u64 until, u64 look_ns, Look&& look) {
    u64 now;
    do {
        const u64 next_look = monotonic_ns() + look_ns;
        do {
            for (int i = 0; i < 8; ++i) relax();
            now = monotonic_ns();
        } while (now < next_look);
    } while (now < until && !look());
}

// The result of one attempt of a call that waits.
enum class Turn {
    over,   // it has what it wants, or must not go on
    again,  // try again at once
    wait,   // there is a reason to wait
};

// Lets `side` try until its turn is over: first spinning, then with the bell heard before each attempt, and sleeping.
//   u32  listen()                     of its bell
//   Turn attempt(u64 now, bool probe) probe: ask the kernel whether those for whom it waits still live
//   bool named()                      a participant is known to be in the way
//   bool spin(u64 until)              false: give up (a signal)
//   bool sleep(u32 heard, u64 ns)     the same
template <class Side>
void wait_until_over(Side& side, u64 start, u64 spin_ns, u64 limit) {
    const u64 spin_end = start + spin_ns;
    for (u64 now = start;; now = monotonic_ns()) {
        const bool spinning = now < spin_end && now < limit;
        const u32 heard = !spinning && now < limit ? side.listen() : 0;
        const Turn turn = side.attempt(now, !spinning);
        if (turn == Turn::over) return;
        if (turn == Turn::again) continue;
        const u64 pause = side.named() ? kProbeBlockedNs : kProbeIdleNs;
        if (!(spinning ? side.spin(std::min(limit, spin_end))
                       : side.sleep(heard, std::min(limit - now, pause))))
            return;
    }
}

// Wakes a thread that waits for several bells when the set of them changes.
class Alarm {
 public:
    void ring() {
        std::atomic_ref<u32>(word_).fetch_add(1, std::memory_order_seq_cst);  // pairs with: hear
        futex_wake_all(&word_);
    }
    u32 hear() {
        return std::atomic_ref<u32>(word_).load(std::memory_order_seq_cst);  // pairs with: ring
    }
    const u32* word() const { return &word_; }

 private:
    u32 word_ = 0;
};

// Sleeps until the alarm or one of the bells rings after it was heard. False: the time is over. Bells beyond the kernel's
// limit are left out: their structures are looked at when the time is over.
inline bool wait_any(const Alarm& alarm, u32 alarm_heard, std::span<const FutexWord> bells,
                     u64 timeout_ns) {
    std::vector<FutexWord> words{{alarm.word(), alarm_heard}};
    const std::size_t count = std::min(bells.size(), kFutexWordsMax - 1);
    words.insert(words.end(), bells.begin(), bells.begin() + static_cast<std::ptrdiff_t>(count));
    Wait result = futex_waitv(words, timeout_ns).result;
    // Kernels before 5.16: a short sleep on the alarm stands in.
    if (result == Wait::unsupported)
        result = futex_wait(alarm.word(), alarm_heard, std::min<u64>(timeout_ns, 1'000'000));
    return result != Wait::timed_out;
}

}  // namespace holdfast
