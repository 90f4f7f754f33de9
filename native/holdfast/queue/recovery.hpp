// What becomes of a dead participant's blocks.
//
// Recovery runs only in the hands of one who shares the dead one's lock byte: the kernel gave it, so the owner is gone, and
// while anybody shares it nobody can have the slot anew. Any number may recover at once, and may die or stop anywhere in
// it: each step is a compare-and-swap from a state that only the dead owner could leave to a word that all of them
// compute alike, so doing it twice does no more than doing it once.
//
//   state of the block   seed's case                              outcome
//   ------------------   ---------------------------------------  --------------------------------------------------
//   (not claimed)        a  before space was reserved             none: there is nothing to give back
//   RESERVED             b–e before the put returned              skip: every consumer passes over it
//   FENCED               as RESERVED, and suspected before        skip: its space may now be used again
//   TAKEN                a reader that did not settle             hand_on (at-least-once) or release (at-most-once)
//   READY, RETRY         a put that may have returned             none: it is everybody's
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

// Repairs the block at `position` if `owner` left it unfinished. The caller shares the owner's byte. Again and again until
// there is nothing to repair, because a living waiter may still turn RESERVED into FENCED under our hands.
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

// All that `owner` left, holding its byte: first the block that is in the caller's way (if any), so that the others go on
// at once, then every block from the tail to the head. An owner's unfinished blocks never leave that range: T cannot
// pass them, and a claim whose head was not moved still carries the head's tag.
template <class Memory>
Recovered recover_holding(QueueState<Memory>& q, u32 owner, u64 blocking_position,
                          u64 blocking_word) {
    Recovered sum;
    q.memory.at(QueuePoint::recover_begin);
    if (blocking_word != 0) {
        if (!q.sound(blocking_word, blocking_position)) {
            q.corrupt("descriptor", blocking_position, blocking_word);
            return sum;
        }
        repair(q, owner, blocking_position, blocking_word, sum);
        q.memory.at(QueuePoint::recover_blocking);
        q.ring(q.words.data_bell);
        q.ring(q.words.space_bell);
    }
    u64 position, tail;
    if (!q.load_position(q.words.tail, tail)) return sum;
    position = tail;
    for (Patience patience(q.geometry.granules()); !patience.over(q);) {
        u64 word = q.load_descriptor(position);
        Tag tag = q.geometry.tag(word, position);
        // Overtaken by a whole lap: what is left of the owner stands at or after T.
        if (tag == Tag::newer) {
            if (q.overtaken_or_corrupt(q.words.tail, tail, position, word) != Verdict::ok ||
                !q.load_position(q.words.tail, tail))
                return sum;
            position = tail;
            continue;
        }
        if (tag == Tag::older || Geometry::state(word) == State::end) {
            sum.complete = true;
            break;
        }
        if (!q.sound(word, position)) {
            q.corrupt("descriptor", position, word);
            return sum;
        }
        repair(q, owner, position, word, sum);
        position += q.geometry.length(word);
    }
    q.memory.at(QueuePoint::recover_scanned);
    q.announce_return();  // always: the owner may have died between its RETRY and its own announcement
    q.memory.at(QueuePoint::recover_announced);
    q.ring(q.words.data_bell);
    q.ring(q.words.space_bell);
    return sum;
}

}  // namespace holdfast
