// How a call of a queue waits: see wait_until_over in holdfast/shm/waiting.hpp. Here are the GIL, signals and errors.
#pragma once

#include "bindings/base/gil.hpp"
#include "bindings/queue/objects.hpp"
#include "bindings/shm/waiting.hpp"
#include "holdfast/shm/waiting.hpp"

namespace holdfast::bindings {

// A full ring is looked at less often: a consumer that is watched block by block is slowed down by it.
inline constexpr u64 kLookForRoomNs = 5'000;

// Marks a stretch in which the GIL may be released, so that no thread detaches meanwhile.
class Busy {
 public:
    explicit Busy(QueueObject* queue) : queue_(queue) { ++queue_->busy; }
    ~Busy() { --queue_->busy; }
    Busy(const Busy&) = delete;

 private:
    QueueObject* queue_;
};

// One call that waits for room or for a message: `attempt(probe)` answers something else than full or empty.
template <class Attempt>
class QueueSide {
 public:
    QueueSide(QueueObject* self, const char* call, double timeout, bool putting, Attempt& attempt)
        : self_(self),
          keep_(self->attachment),
          call_(call),
          timeout_(timeout),
          putting_(putting),
          attempt_(attempt),
          time_(timeout) {}

    // True: ok. False: an exception is set.
    bool wait() {
        wait_until_over(*this, time_.start, self_->spin_ns, time_.limit);
        return good_;
    }

    u32 listen() { return putting_ ? keep_->listen_space() : keep_->listen_data(); }
    bool named() const { return keep_->blocked_by_somebody(); }

    Turn attempt(u64 now, bool probe) {
        if (!usable(self_)) return Turn::over;
        Verdict verdict = attempt_(probe);
        if (verdict == Verdict::closed && !probe)
            verdict = attempt_(true);  // others may hold messages that come back
        const Verdict blocked = putting_ ? Verdict::full : Verdict::empty;
        const bool passed_over = verdict == Verdict::fenced || verdict == Verdict::contended;
        if (verdict == Verdict::ok) {
            good_ = true;
            return Turn::over;
        }
        if (passed_over && now < time_.limit)
            return PyErr_CheckSignals() < 0 ? Turn::over : Turn::again;
        if (verdict != blocked || now >= time_.limit) {
            const bool late = timeout_ != 0 && (verdict == blocked || passed_over);
            raise_verdict(*keep_, verdict, call_, time_.waited_s(now), !late);
            return Turn::over;
        }
        return probe && !still_usable(*keep_) ? Turn::over : Turn::wait;
    }

    // Looks without the GIL and without asking the kernel.
    bool spin(u64 until) {
        {
            const GilRelease release;
            const u64 tail = keep_->tail_word();
            spin_until(until, putting_ ? kLookForRoomNs : 0, [&] {
                return putting_ ? keep_->looks_puttable(tail) : keep_->looks_gettable();
            });
        }
        return PyErr_CheckSignals() == 0;
    }

    bool sleep(u32 heard, u64 ns) {
        return sleep_on(putting_ ? keep_->space_bell() : keep_->data_bell(), heard, ns);
    }

 private:
    QueueObject* self_;
    const std::shared_ptr<QueueAttachment>
        keep_;  // the mapping outlives a detach by another thread
    const char* call_;
    double timeout_;
    bool putting_;
    Attempt& attempt_;
    const TimeLimit time_;
    bool good_ = false;
};

template <class Attempt>
bool wait_for(QueueObject* self, const char* call, double timeout, bool putting,
              Attempt&& attempt) {
    return QueueSide(self, call, timeout, putting, attempt).wait();
}

}  // namespace holdfast::bindings
