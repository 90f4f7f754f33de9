// How a call waits: it spins for a moment, then listens to a bell, looks once more, and sleeps. No wake-up is relied on.
#pragma once

#include "bindings/base/gil.hpp"
#include "bindings/queue/objects.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace holdfast::bindings {

inline constexpr u64 kProbeBlockedNs =
    500'000;  // behind a named owner: how soon its death is noticed
inline constexpr u64 kProbeIdleNs =
    50'000'000;  // nobody in the way: every wait is bounded all the same
inline constexpr u64 kLookForRoomNs = 5'000;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Marks a stretch in which the GIL may be let go, so that nobody detaches under our feet.
class Busy {
 public:
    explicit Busy(QueueObject* queue) : queue_(queue) { ++queue_->busy; }
    ~Busy() { --queue_->busy; }
    Busy(const Busy&) = delete;

 private:
    QueueObject* queue_;
};

// Looks for room or a message without the GIL and without asking the kernel, until `until` or until there may be some.
// A full ring is looked at less often: a consumer that is watched block by block is slowed down by it.
inline void spin(QueueAttachment& attachment, bool putting, u64 until) {
    const u64 look_ns = putting ? kLookForRoomNs : 0;
    const u64 tail = attachment.tail_word();
    u64 now;
    do {
        const u64 next_look = monotonic_ns() + look_ns;
        do {
            for (int i = 0; i < 8; ++i) relax();
            now = monotonic_ns();
        } while (now < next_look);
    } while (now < until &&
             !(putting ? attachment.looks_puttable(tail) : attachment.looks_gettable()));
}

// Waits until `attempt(probe)` answers something else than full or empty (or fenced): spins, then listens to the bell,
// looks once more, and sleeps. True: ok. False: an exception is set.
template <class Attempt>
bool wait_for(QueueObject* self, const char* call, double timeout, bool putting,
              Attempt&& attempt) {
    // The mapping outlives a detach by another thread.
    const std::shared_ptr<QueueAttachment> keep = self->attachment;
    QueueAttachment& attachment = *keep;
    const Verdict blocked = putting ? Verdict::full : Verdict::empty;
    const u64 start = monotonic_ns(), spin_until = start + self->spin_ns;
    const u64 limit =
        timeout < 0 || timeout > 1e9 ? ~u64{0} : start + static_cast<u64>(timeout * 1e9);
    for (u64 now = start;; now = monotonic_ns()) {
        const bool spinning = now < spin_until && now < limit;
        u32 heard = 0;
        if (!spinning && now < limit)
            heard = putting ? attachment.listen_space() : attachment.listen_data();
        if (!usable(self)) return false;
        Verdict verdict = attempt(!spinning);
        if (verdict == Verdict::closed && spinning)
            verdict = attempt(true);  // others may hold messages that come back
        if (verdict == Verdict::ok) return true;
        if ((verdict == Verdict::fenced || verdict == Verdict::contended) && now < limit) {
            if (PyErr_CheckSignals() < 0) return false;
            continue;
        }
        if (verdict != blocked || now >= limit) {
            const bool late = timeout != 0 && (verdict == blocked || verdict == Verdict::fenced ||
                                               verdict == Verdict::contended);
            raise_verdict(attachment, verdict, call, static_cast<double>(now - start) / 1e9, !late);
            return false;
        }
        if (!spinning && !still_usable(attachment)) return false;
        const u64 pause = attachment.blocked_by_somebody() ? kProbeBlockedNs : kProbeIdleNs;
        {
            GilRelease release;
            if (spinning)
                spin(attachment, putting, std::min(limit, spin_until));
            else
                futex_wait(putting ? attachment.space_bell() : attachment.data_bell(), heard,
                           std::min(limit - now, pause));
        }
        if (PyErr_CheckSignals() < 0) return false;
    }
}

}  // namespace holdfast::bindings
