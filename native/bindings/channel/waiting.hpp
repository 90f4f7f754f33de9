// How a call of a channel waits: see wait_until_over in holdfast/shm/waiting.hpp. Here are the GIL, signals and errors.
#pragma once

#include <algorithm>
#include <array>

#include "bindings/base/gil.hpp"
#include "bindings/channel/objects.hpp"
#include "bindings/shm/waiting.hpp"
#include "holdfast/shm/waiting.hpp"

namespace holdfast::bindings {

// One call that waits: `attempt()` answers something else than full, empty or starved. `fail(result, waited_s, nowait)`
// raises the exception for any answer but ok.
template <class Attempt, class Fail>
class RoleSide {
 public:
    RoleSide(RoleObject* self, u32 priority, double timeout, Attempt& attempt, Fail& fail)
        : self_(self),
          priority_(priority),
          keep_(self->hold),
          timeout_(timeout),
          attempt_(attempt),
          fail_(fail),
          time_(timeout) {}

    // True: ok. False: an exception is set.
    bool wait() {
        wait_until_over(*this, time_.start, self_->spin_ns, time_.limit);
        return good_;
    }

    u32 listen() { return keep_->listen(); }
    bool named() const { return false; }

    Turn attempt(u64 now, bool probe) {
        if (!usable(self_)) return Turn::over;
        const Handover result = attempt_();
        if (result == Handover::ok) {
            good_ = true;
            return Turn::over;
        }
        const bool starved = result == Handover::starved;
        const bool blocked = starved || result == Handover::full || result == Handover::empty;
        if (!blocked || now >= time_.limit) {
            fail_(result, time_.waited_s(now), timeout_ == 0 || !blocked);
            return Turn::over;
        }
        if (starved) {
            {
                const GilRelease turn_of_others;
            }
            return PyErr_CheckSignals() < 0 ? Turn::over : Turn::again;
        }
        return probe && !still_usable(*keep_) ? Turn::over : Turn::wait;
    }

    // Looks without the GIL and without asking the kernel.
    bool spin(u64 until) {
        {
            ProducerHold* producer = self_->producer;
            ConsumerHold* consumer = self_->consumer;
            const u64 tail = producer != nullptr ? producer->tail(priority_) : 0;
            // A copy: another thread may pop meanwhile.
            std::array<u64, kChannelLanesMax> heads;
            if (consumer != nullptr) std::ranges::copy(consumer->heads(), heads.begin());
            const GilRelease release;
            spin_until(until, 0, [&] {
                return producer != nullptr ? producer->looks_pushable(priority_, tail)
                                           : !consumer->looks_empty(heads);
            });
        }
        return PyErr_CheckSignals() == 0;
    }

    bool sleep(u32 heard, u64 ns) { return sleep_on(keep_->bell(), heard, ns); }

 private:
    RoleObject* self_;
    u32 priority_;                             // of a push
    const std::shared_ptr<ChannelHold> keep_;  // the mapping outlives a close by another thread
    double timeout_;
    Attempt& attempt_;
    Fail& fail_;
    const TimeLimit time_;
    bool good_ = false;
};

template <class Attempt, class Fail>
bool wait_for(RoleObject* self, u32 priority, double timeout, Attempt&& attempt, Fail&& fail) {
    return RoleSide<Attempt, Fail>(self, priority, timeout, attempt, fail).wait();
}

}  // namespace holdfast::bindings
