// Recovery: repairs the blocks of a dead participant.
//
// A recoverer shares the lock byte of the dead owner. The kernel gave it the byte, so the owner is gone. While a recoverer
// shares the byte, no process can take the slot. Any number may recover at once, and may die or stop at any step.
// Each step is a compare-and-swap from a state that only the dead owner could leave. All recoverers compute the same
// word for it, so a step done twice has the effect of one.
//
//   state of the block   seed's case                              outcome
//   ------------------   ---------------------------------------  --------------------------------------------------
//   (not claimed)        a  before space was reserved             none: there is nothing to give back
//   RESERVED             b–e before the put returned              skip: every consumer passes over it
//   FENCED               as RESERVED, and suspected before        skip: its space may now be used again
//   TAKEN                a consumer that did not settle           hand_on (at-least-once) or release (at-most-once)
//   READY, RETRY         a put that may have returned             none: any consumer may take it
//   DONE, SKIP, END      over                                     none
#pragma once

#include "holdfast/queue/state.hpp"

namespace holdfast {

enum class Repair { none, skip, hand_on, release };

inline constexpr const char* kRepairNames[] = {"none", "skip", "hand_on", "release"};

inline Repair repair_of(State state, Delivery delivery) {
    switch (state) {
        case State::reserved:
        case State::fenced:
            return Repair::skip;
        case State::taken:
            return delivery == Delivery::at_least_once ? Repair::hand_on : Repair::release;
        default:
            return Repair::none;
    }
}

struct Recovered {
    u32 skipped = 0;
    u32 handed_on = 0;
    u32 released = 0;
    bool complete = false;

    Recovered& operator+=(const Recovered& other) {
        skipped += other.skipped;
        handed_on += other.handed_on;
        released += other.released;
        return *this;
    }
};

// Repairs the block at `position` if `owner` left it unfinished. The caller shares the owner's byte. Repeats until there
// is nothing to repair, because a living waiter may turn RESERVED into FENCED meanwhile.
template <class Memory>
void repair(QueueState<Memory>& q, u32 owner, u64 position, u64 word, Recovered& sum) {
    for (Patience patience(q.geometry.granules()); !patience.over(q);) {
        if (q.geometry.tag(word, position) != Tag::current || Geometry::owner(word) != owner)
            return;
        u64 becomes = 0;
        u32* counter = nullptr;
        switch (repair_of(Geometry::state(word), q.delivery)) {
            case Repair::none:
                return;
            case Repair::skip:
                becomes = Geometry::with(word, State::skip, owner);
                counter = &sum.skipped;
                break;
            case Repair::hand_on:
                becomes = Geometry::returned(word, q.deliveries_with_this(position));
                counter = &sum.handed_on;
                break;
            case Repair::release:
                becomes = Geometry::with(word, State::done, owner);
                counter = &sum.released;
                break;
        }
        q.memory.at(QueuePoint::recover_decided);
        if (q.memory.cas(q.descriptor(position), word, becomes,
                         std::memory_order_acq_rel)) {  // pairs with: load_descriptor
            ++*counter;
            q.memory.at(QueuePoint::recover_block);
            return;
        }
    }
}

// Repairs all that `owner` left; the caller shares its byte. The block in the caller's way comes first, if there is one, so
// that waiting participants go on at once. Then comes every block from the tail to the head. Unfinished blocks never leave
// that range: T cannot pass them, and a claim whose head was not moved still carries the head's tag.
template <class Memory>
Recovered recover_holding(QueueState<Memory>& q, u32 owner, u64 blocking_position,
                          u64 blocking_word) {
    Recovered sum;
    q.memory.at(QueuePoint::recover_begin);
    if (blocking_word != 0) {
        repair(q, owner, blocking_position, blocking_word, sum);
        q.memory.at(QueuePoint::recover_blocking);
        q.ring(q.words.data_bell);
        q.ring(q.words.space_bell);
    }
    Start start{q.words.tail, 0};
    if (!q.load_position(start.word, start.position)) return sum;
    u64 position = start.position;
    for (Patience patience(q.geometry.granules()); !patience.over(q);) {
        const LoadedBlock block = q.load_block(start, position);
        if (block.look == Look::corrupt) return sum;
        if (block.look == Look::moved) {  // what is left of the owner stands at or after T
            if (!q.load_position(start.word, start.position)) return sum;
            position = start.position;
            continue;
        }
        if (block.look == Look::nothing || block.state == State::end) {
            sum.complete = true;
            break;
        }
        repair(q, owner, position, block.word, sum);
        position = block.end();
    }
    q.memory.at(QueuePoint::recover_scanned);
    q.announce_return();  // always: the owner may have died between its RETRY and its own announcement
    q.memory.at(QueuePoint::recover_announced);
    q.ring(q.words.data_bell);
    q.ring(q.words.space_bell);
    return sum;
}

}  // namespace holdfast
