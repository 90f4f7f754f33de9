// Calls: a proxy asks, the provider answers, each call runs at most once.
//
//   proxy     1  IDLE -> CLAIMED          (cas)   its number moves: the word of an earlier call never comes again
//             2  request
//             3  CLAIMED -> CALL          (cas)
//   provider  4  CALL -> RUNNING          (cas)   from here on it is never run again
//             5  a private copy of the request; the handler runs; response
//             6  RUNNING -> DONE          (cas)   or ABANDONED -> IDLE: its caller does not wait any more
//   proxy     7  response
//             8  DONE -> IDLE             (cas)
//
// A proxy that does not want to wait any longer withdraws: CALL -> IDLE (it never ran), RUNNING -> ABANDONED (it runs).
//
//   died          word                    what others do
//   proxy 1, 2    CLAIMED                 -> IDLE, by any process that shares its lock byte
//   proxy 3       CALL                    -> IDLE, the same
//                 RUNNING                 -> ABANDONED, the same
//                 DONE, FAILED            -> IDLE, the same
//   provider      CALL                    the next provider runs it, unless its caller has withdrawn it
//                 RUNNING                 -> FAILED by the next provider, or -> IDLE by its caller, which shares the
//                                         provider's lock byte: `PeerDied`
//                 ABANDONED               -> IDLE by the next provider
//
// M1 the step from CALL to RUNNING happens once for each number.
// M2 a caller that gets a response gets that of its own number.
// M3 a place returns to IDLE when its caller has got its response, has withdrawn, or is dead.
#pragma once

#include <atomic>

#include "holdfast/base/points.hpp"
#include "holdfast/service/layout.hpp"
#include "holdfast/shm/bell.hpp"

namespace holdfast {

HOLDFAST_POINTS(CallPoint, call_claimed, call_written, call_submitted, call_running, call_answered,
                call_done, call_collected, call_withdrawn, call_failed, call_cleared);

// A call under way, as its caller knows it.
struct CallTicket {
    u32 place = 0;
    u64 word = 0;  // in the state CLAIMED; the states that follow have the same owner and number
};

enum class CallLook {
    waiting,  // the provider has not begun
    running,
    done,
    failed,  // the provider died while it ran
    gone,    // the word is another call's: damage
};

enum class Withdrawn {
    unexecuted,  // it never ran
    running,     // it runs, or it ran and the provider died
    done,        // it is complete: collect it
};

template <class Memory>
class Calls {
 public:
    static constexpr u32 kNone = 0xffffffffu;

    Calls(Memory& memory, const ElementWords& words, u32 count, const ServiceSlots& slots)
        : memory_(memory), words_(words), count_(count), slots_(slots) {}

    const ElementWords& words() const { return words_; }

    // ---- the caller's side

    // False: all places are in use.
    bool claim(u32 me, CallTicket& ticket) {
        for (u32 i = 0; i < count_; ++i) {
            const u32 place = (me + i) % count_;
            u64 found = memory_.load(words_.call(place), std::memory_order_relaxed);
            if (call_state(found) != CallState::idle || call_number(found) >= kCallNumberMax)
                continue;
            const u64 mine = call_word(CallState::claimed, me, call_number(found) + 1);
            // pairs with: collect, withdraw (of the last caller)
            if (!memory_.cas(words_.call(place), found, mine, std::memory_order_acq_rel)) continue;
            ticket = {place, mine};
            memory_.at(CallPoint::call_claimed);
            return true;
        }
        return false;
    }

    // After the request was written. False: the word is not ours any more, which only damage explains.
    bool submit(const CallTicket& ticket) {
        memory_.at(CallPoint::call_written);
        u64 found = ticket.word;
        // pairs with: run
        const bool submitted =
            memory_.cas(words_.call(ticket.place), found, call_moved(ticket.word, CallState::call),
                        std::memory_order_acq_rel);
        memory_.at(CallPoint::call_submitted);
        return submitted;
    }

    CallLook look(const CallTicket& ticket) const {
        // pairs with: answer, clean
        const u64 found = memory_.load(words_.call(ticket.place), std::memory_order_acquire);
        if (call_moved(found, CallState::claimed) != ticket.word) return CallLook::gone;
        switch (call_state(found)) {
            case CallState::call:
                return CallLook::waiting;
            case CallState::running:
                return CallLook::running;
            case CallState::done:
                return CallLook::done;
            case CallState::failed:
                return CallLook::failed;
            default:
                return CallLook::gone;
        }
    }

    // After the response was read, or after a failure: frees the place.
    void collect(const CallTicket& ticket, CallState from) {
        u64 found = call_moved(ticket.word, from);
        // pairs with: claim (of the next caller), and so with the provider's next response
        memory_.cas(words_.call(ticket.place), found, call_moved(ticket.word, CallState::idle),
                    std::memory_order_acq_rel);
        memory_.at(CallPoint::call_collected);
    }

    // The caller gives up. `provider_dead`: it shares the provider's lock byte.
    Withdrawn withdraw(const CallTicket& ticket, bool provider_dead) {
        u64 found = call_moved(ticket.word, CallState::call);
        // pairs with: claim (of the next caller)
        if (memory_.cas(words_.call(ticket.place), found, call_moved(found, CallState::idle),
                        std::memory_order_acq_rel)) {
            memory_.at(CallPoint::call_withdrawn);
            return Withdrawn::unexecuted;
        }
        if (found == call_moved(ticket.word, CallState::running)) {
            const CallState next = provider_dead ? CallState::idle : CallState::abandoned;
            // pairs with: answer
            if (memory_.cas(words_.call(ticket.place), found, call_moved(found, next),
                            std::memory_order_acq_rel)) {
                memory_.at(CallPoint::call_withdrawn);
                return Withdrawn::running;
            }
        }
        if (found == call_moved(ticket.word, CallState::done)) return Withdrawn::done;
        if (found == call_moved(ticket.word, CallState::failed)) collect(ticket, CallState::failed);
        return Withdrawn::running;
    }

    // ---- the provider's side

    // Takes the next call, beginning behind the place `after`. kNone: there is not one.
    u32 run(u32 after, u64& word) {
        for (u32 i = 1; i <= count_; ++i) {
            const u32 place = (after + i) % count_;
            u64 found = memory_.load(words_.call(place), std::memory_order_relaxed);
            if (call_state(found) != CallState::call) continue;
            const u64 running = call_moved(found, CallState::running);
            // pairs with: submit
            if (!memory_.cas(words_.call(place), found, running, std::memory_order_acq_rel))
                continue;
            word = running;
            memory_.at(CallPoint::call_running);
            return place;
        }
        return kNone;
    }

    // After the response was written. False: its caller does not wait any more.
    bool answer(u32 place, u64 running) {
        memory_.at(CallPoint::call_answered);
        u64 found = running;
        // pairs with: look
        bool done = memory_.cas(words_.call(place), found, call_moved(running, CallState::done),
                                std::memory_order_acq_rel);
        if (!done && found == call_moved(running, CallState::abandoned))
            // pairs with: claim (of the next caller)
            memory_.cas(words_.call(place), found, call_moved(running, CallState::idle),
                        std::memory_order_acq_rel);
        memory_.at(CallPoint::call_done);
        return done;
    }

    // By the next provider: the calls that the dead one ran.
    void clean() {
        for (u32 place = 0; place < count_; ++place) {
            change(place, [](u64 word) {
                switch (call_state(word)) {
                    case CallState::running:
                        return call_moved(word, CallState::failed);
                    case CallState::abandoned:
                        return call_moved(word, CallState::idle);
                    default:
                        return word;
                }
            });
            memory_.at(CallPoint::call_failed);
        }
    }

    // ---- anyone's

    // Frees the places of a dead caller. The caller of this shares its lock byte, or has it alone.
    u32 clear(u32 slot) {
        u32 cleared = 0;
        for (u32 place = 0; place < count_; ++place) {
            cleared += change(place, [slot](u64 word) {
                if (call_owner(word) != slot) return word;
                switch (call_state(word)) {
                    case CallState::idle:
                    case CallState::abandoned:
                        return word;
                    case CallState::running:
                        return call_moved(word, CallState::abandoned);
                    default:
                        return call_moved(word, CallState::idle);
                }
            });
        }
        return cleared;
    }

 private:
    static constexpr int kTries = 8;  // a word of one call moves at most so often

    template <class Change>
    bool change(u32 place, Change&& next) {
        u64 found = memory_.load(words_.call(place),
                                 std::memory_order_acquire);  // pairs with: submit, answer
        for (int tries = 0; tries < kTries; ++tries) {
            const u64 wanted = next(found);
            if (wanted == found) return false;
            // pairs with: claim, look, answer
            if (memory_.cas(words_.call(place), found, wanted, std::memory_order_acq_rel)) {
                memory_.at(CallPoint::call_cleared);
                return true;
            }
        }
        return false;
    }

    Memory& memory_;
    ElementWords words_;
    u32 count_;
    ServiceSlots slots_;
};

}  // namespace holdfast
