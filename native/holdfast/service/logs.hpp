// Logs: which participants may hold samples of an element, and how many. Subscribing needs no lock.
//
//   subscribe   1  0 -> ASKING|k          (cas)   an intent that all later ones count
//               2  sum of all logs                too many: withdraw; or withdraw one that asks, and has a higher slot
//               3  ASKING|k -> ACTIVE|k   (cas)   fails if another one withdrew it: again from 1
//   unsubscribe 1  ACTIVE|k -> 0          (store) after the last sample was released
//
// L1 the samples of all ACTIVE logs, one more for each log, the provider's loans and the newest are at most `samples`.
//    There are at most `max_subscribers` logs. Of all ACTIVE logs, look at the one whose step 1 came last: its sum, which
//    was made later, counted all the others.
// L2 a log is written by its participant; others only withdraw an ASKING, or clear the log of a dead one.
//
// The original registers a log by compare-and-swap on an id, and keeps a list of begun and ended transactions in it. Here
// the index of a log is its participant's slot, and the list is the participant's bits in the samples (samples.hpp).
#pragma once

#include "holdfast/service/samples.hpp"

namespace holdfast {

HOLDFAST_POINTS(LogPoint, log_asked, log_summed, log_withdrew, log_active, log_left, log_cleared);

enum class Subscribing {
    ok,
    full,     // `samples` of the element do not allow it
    crowded,  // there are `max_subscribers`
    busy,     // others subscribe at the same moment, again and again
};

template <class Memory>
class Logs {
 public:
    Logs(Memory& memory, const ElementWords& words, const ElementSpec& spec,
         const ServiceSlots& slots)
        : memory_(memory),
          words_(words),
          samples_(spec.samples),
          loans_(spec.loans),
          max_subscribers_(spec.max_subscribers),
          slots_(slots) {}

    // `me`: a proxy or the tracer. `reap()` clears the logs of dead participants, and returns whether there was one.
    template <class Reap>
    Subscribing subscribe(u32 me, u32 samples, Reap&& reap) {
        const u32 asking = log_word(kLogAsking, samples);
        bool reaped = false;
        for (u32 tries = 0; tries < slots_.subscribe_tries; ++tries) {
            u32 free = 0;
            // pairs with: sum (of others)
            if (!memory_.cas(words_.log(me), free, asking, std::memory_order_acq_rel) &&
                free != asking)
                return Subscribing::
                    busy;     // it has a subscription already; the caller excludes that
            memory_.fence();  // pairs with: fence (of others that ask)
            memory_.at(LogPoint::log_asked);
            const Sum sum = add_up(me);
            memory_.at(LogPoint::log_summed);
            Subscribing result =
                fits(me, samples, sum.active + sum.asking, sum.actives + sum.askings);
            if (result == Subscribing::ok) {
                u32 expected = asking;
                // pairs with: withdraw
                if (memory_.cas(words_.log(me), expected, log_word(kLogActive, samples),
                                std::memory_order_acq_rel)) {
                    memory_.at(LogPoint::log_active);
                    return result;
                }
                continue;  // a proxy with a lower slot withdrew it
            }
            result = fits(me, samples, sum.active, sum.actives);
            if (result == Subscribing::ok) {  // only those that ask are in the way
                for (u32 slot = me + 1; slot <= slots_.tracer(); ++slot) withdraw(slot);
                if (tries == 1) reap();  // one with a lower slot may be dead
                continue;
            }
            if (!reaped && reap()) {
                reaped = true;
                continue;
            }
            leave(me);
            return result;
        }
        leave(me);
        return Subscribing::busy;
    }

    // After the last sample was released.
    void leave(u32 me) {
        memory_.store(words_.log(me), 0, std::memory_order_release);  // pairs with: add_up
        memory_.at(LogPoint::log_left);
    }

    // Clears what a dead participant left. The caller shares its lock byte, or has it alone.
    bool clear(u32 slot, Samples<Memory>& samples) {
        // pairs with: subscribe (of the dead)
        if (memory_.load(words_.log(slot), std::memory_order_acquire) == 0) return false;
        samples.clear_holder(slot);
        // Last: as long as the log is there, a crash here leads the next one to the bits.
        memory_.store(words_.log(slot), 0, std::memory_order_release);  // pairs with: add_up
        memory_.at(LogPoint::log_cleared);
        return true;
    }

    // How many samples a participant may hold; 0: it has not subscribed.
    u32 granted(u32 slot) const {
        const u32 word = memory_.load(words_.log(slot), std::memory_order_relaxed);
        return log_state(word) == kLogActive ? log_samples(word) : 0;
    }
    u32 word(u32 slot) const { return memory_.load(words_.log(slot), std::memory_order_relaxed); }

 private:
    struct Sum {
        u64 active = 0, asking = 0;  // samples, and one more for each log
        u32 actives = 0, askings = 0;
    };

    Sum add_up(u32 me) const {
        Sum sum;
        for (u32 slot = 0; slot <= slots_.tracer(); ++slot) {
            if (slot == me) continue;
            // pairs with: subscribe, leave
            const u32 word = memory_.load(words_.log(slot), std::memory_order_acquire);
            if (word == 0) continue;
            const bool asks = log_state(word) == kLogAsking;
            (asks ? sum.asking : sum.active) += u64{log_samples(word)} + 1;
            if (slot != slots_.tracer()) ++(asks ? sum.askings : sum.actives);
        }
        return sum;
    }

    Subscribing fits(u32 me, u32 samples, u64 others, u32 logs) const {
        if (others + samples + 1 + loans_ + 1 > samples_) return Subscribing::full;
        if (me != slots_.tracer() && logs + 1 > max_subscribers_) return Subscribing::crowded;
        return Subscribing::ok;
    }

    // It asks again, and then counts us.
    void withdraw(u32 slot) {
        u32 found = memory_.load(words_.log(slot), std::memory_order_relaxed);
        if (log_state(found) != kLogAsking) return;
        memory_.cas(words_.log(slot), found, 0,
                    std::memory_order_acq_rel);  // pairs with: subscribe
        memory_.at(LogPoint::log_withdrew);
    }

    Memory& memory_;
    ElementWords words_;
    u32 samples_, loans_, max_subscribers_;
    ServiceSlots slots_;
};

}  // namespace holdfast
