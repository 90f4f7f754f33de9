// How a call of a service waits: see wait_until_over in holdfast/shm/waiting.hpp. Here are the GIL, signals and errors.
#pragma once

#include <unistd.h>

#include "bindings/base/gil.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/shm/waiting.hpp"
#include "holdfast/shm/waiting.hpp"

namespace holdfast::bindings {

enum class Tried : u8 {
    ok,
    blocked,  // wait
    again,    // let other threads run, then try again
    failed,   // do not go on; an exception is set, or the caller knows
};

// Looks for some microseconds. An event that comes this soon is not worth a release of the GIL.
template <class Look>
bool comes_soon(const ServiceObject* self, Look&& look) {
    constexpr int kLooks = 100;
    for (int looks = 0; looks < kLooks && self->spin_ns != 0; ++looks) {
        if (look()) return true;
        relax();
    }
    return false;
}

// Lets other threads of this process run for a moment. False: a signal's handler raised.
inline bool let_others_run() {
    {
        const GilRelease release;
        ::usleep(20);
    }
    return PyErr_CheckSignals() == 0;
}

// One call that waits. `attempt(probe)` tries; `look()` runs without the GIL and finds a reason to try; `late(waited_s)`
// is called when the time is over.
template <class Attempt, class Look, class Late>
class ServiceSide {
 public:
    ServiceSide(ServiceObject* self, u32* bell, const TimeLimit& time, Attempt& attempt, Look& look,
                Late& late)
        : self_(self),
          keep_(self->hold),
          bell_(bell),
          time_(time),
          attempt_(attempt),
          look_(look),
          late_(late) {}

    // True: ok. False: an exception is set, or `late` or `attempt` know more.
    bool wait() {
        ++self_->waiting;
        wait_until_over(*this, time_.start, self_->spin_ns, time_.limit);
        --self_->waiting;
        return good_;
    }

    u32 listen() { return keep_->listen(bell_); }
    bool named() const { return false; }

    Turn attempt(u64 now, bool probe) {
        if (!(probe ? still_usable(self_) : usable(self_))) return Turn::over;
        const Tried result = attempt_(probe);
        good_ = result == Tried::ok;
        if (good_ || result == Tried::failed) return Turn::over;
        if (now >= time_.limit) {
            late_(time_.waited_s(now));
            return Turn::over;
        }
        if (result == Tried::blocked) return Turn::wait;
        return let_others_run() ? Turn::again : Turn::over;
    }

    bool spin(u64 until) {
        {
            const GilRelease release;
            spin_until(until, 0, look_);
        }
        return PyErr_CheckSignals() == 0;
    }

    bool sleep(u32 heard, u64 ns) { return sleep_on(bell_, heard, ns); }

 private:
    ServiceObject* self_;
    const std::shared_ptr<ServiceHold> keep_;  // the mapping outlives a close by another thread
    u32* bell_;
    const TimeLimit& time_;
    Attempt& attempt_;
    Look& look_;
    Late& late_;
    bool good_ = false;
};

template <class Attempt, class Look, class Late>
bool wait_for(ServiceObject* self, u32* bell, const TimeLimit& time, Attempt&& attempt, Look&& look,
              Late&& late) {
    return ServiceSide<Attempt, Look, Late>(self, bell, time, attempt, look, late).wait();
}

}  // namespace holdfast::bindings
