// The hand-over of buffers: one producer, one consumer, a ring of state bytes (state.hpp).
//
// A datum has a position, a number that only grows; its slot is position mod n, with n = slots + 1. The producer stands
// at the END, whose position is the next datum's. Each slot has two words beside its state, written by the producer only.
// `index` is the buffer, `position` that of the datum or END in the slot. They are written while the slot is PENDING or
// END. A consumer that finds its INSPECTED mark in place has read them whole, at any width of the machine's words.
//
//   push     1  PENDING <- slot of END + 1       (exchange)  the oldest datum, if one is there, is the producer's again
//            2  index of the END's slot, position of the new END
//            3  END     <- slot of END + 1       (store)
//            4  DATA    <- slot of the END       (exchange)  the datum is the ring's: all of the push, or none of it
//
//   pop      1  DATA -> DATA|INSPECTED           (cas)
//            2  position, index; is it the datum that is next?
//            3  owner of the buffer <- consumer  (cas)       an intent: it counts only once the datum is out of the ring
//            4  DATA|INSPECTED -> EMPTY          (cas)       the buffer is the consumer's
//
// The owner of a buffer follows from these bytes alone, at every moment (C1):
//
//   the ring          its slot has DATA
//   the consumer      not in the ring, and `owner` of the buffer is a participant
//   the producer      not in the ring, and `owner` of the buffer is 0
//
// There is no other record of an operation under way. A crash leaves one of these pictures, t being the END's position:
//
//   died in push after   slots t, t+1             owner of the new buffer, of the displaced   what the next producer does
//   0 (before)           END, any                 producer, ring                              -
//   1, 2                 END, PENDING             producer, producer                          PENDING -> HOLE|OVERFLOW
//   3                    END, END                 producer, producer                          second END -> HOLE|OVERFLOW
//   4                    DATA or later, END       ring or consumer, producer                  - (the push is complete)
//
//   died in pop after    slot                     owner of the buffer                         what the next consumer does
//   1, 2                 DATA|INSPECTED           ring                                        takes it as any other datum
//   3                    DATA|INSPECTED           ring                                        the same; owner <- 0
//   4                    EMPTY                    consumer, until owner <- 0                  never delivers it again
//
// A batch of k freezes k slots, writes the datums of the later slots first, and becomes visible with the same exchange.
// Its producer dead, slots with DATA beyond the END are uncommitted: they become HOLE|OVERFLOW, too.
//
// C2 positions: the consumer's next position is never beyond the END, and everything before it has left the ring.
// C3 in a slot whose state is DATA or END, `position` names that datum or END.
// C4 there is one END, or a second one, later by at most n - 1, which a push under way has made.
#pragma once

#include <atomic>
#include <span>

#include "holdfast/base/points.hpp"
#include "holdfast/channel/layout.hpp"
#include "holdfast/channel/state.hpp"
#include "holdfast/shm/bell.hpp"
#include "holdfast/shm/fault.hpp"

namespace holdfast {

HOLDFAST_POINTS(ChannelPoint,
                // push
                push_begin, push_frozen, push_written, push_ended, push_inner, push_published,
                // pop, release, cancel
                pop_inspected, pop_read, pop_claimed, pop_taken, pop_noted, pop_jumped, released,
                cancelled,
                // roles and their recovery
                role_taken, mend_begin, mend_slot, mend_owner);

// The result of an operation.
enum class Handover {
    ok,
    empty,      // nothing to pop
    full,       // no slot is free, and this channel does not overflow
    starved,    // the producer has overtaken this pop too often; `lost` tells how much
    corrupt,    // a word holds what no participant can have written; `fault` says which
    exhausted,  // the positions are used up
};

// A datum that pop() took.
struct Popped {
    u64 position = 0;
    u32 index = 0;
    u64 lost = 0;  // datums that were overwritten since the last pop
    u32 lane = 0;  // see lanes.hpp
};

template <class Memory, u32 kStride = kStateStride>
class ChannelRing {
 public:
    using Words = ChannelWords<kStride>;

    ChannelRing(Memory& memory, const ChannelGeometry& geometry, std::byte* base)
        : memory_(memory), geometry_(geometry), words_(base, geometry) {}
    // A ring whose buffers are those of `pool`, another ring.
    ChannelRing(Memory& memory, const ChannelGeometry& geometry, std::byte* base,
                const ChannelRing& pool)
        : memory_(memory), geometry_(geometry), words_(base, geometry, pool.words_) {}

    Fault fault{};
    u64 empty_at = 0;  // the consumer's position when it last found the END there

    // ---- the producer's side. `tail` is the position of the END, kept by the caller.

    // Pushes the datums in `buffers`, at most `slots` of them; all become visible at once. `frozen(slot, had_data)` is told
    // of each slot that the push takes. Wait-free: the number of accesses is bounded.
    template <class Frozen>
    Handover push(u64& tail, std::span<const u32> buffers, bool overflow, Frozen&& frozen) {
        const u64 count = buffers.size();
        const u64 end = tail + count;
        if (end > kChannelPositionMax) return Handover::exhausted;
        memory_.at(ChannelPoint::push_begin);
        if (!overflow) {
            for (u64 position = tail + 1; position <= end; ++position) {
                // pairs with: take (the consumer's reads of the slot's words are over)
                const u8 state =
                    memory_.load(words_.state(slot(position)), std::memory_order_acquire);
                if ((state & kData) != 0) return Handover::full;
            }
        }
        u8 end_state = kEnd;
        for (u64 position = tail + 1; position <= end; ++position) {
            // pairs with: take
            const u8 found =
                memory_.exchange(words_.state(slot(position)), kPending, std::memory_order_acq_rel);
            if (!plausible_state(found)) return damaged("state", position, found);
            // Unseen by the consumer: a datum, or the hole that an earlier producer left of one.
            if (position == end && (found & (kData | kOverflow)) != 0) end_state |= kOverflow;
            frozen(slot(position), (found & kData) != 0);
        }
        memory_.at(ChannelPoint::push_frozen);
        for (u64 i = 0; i < count; ++i) {
            memory_.store(words_.index(slot(tail + i)), buffers[i], std::memory_order_relaxed);
            memory_.store(words_.position(slot(tail + i + 1)), tail + i + 1,
                          std::memory_order_relaxed);
        }
        memory_.at(ChannelPoint::push_written);
        // pairs with: load_state
        memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);
        memory_.at(ChannelPoint::push_ended);
        for (u64 position = end - 1; position > tail; --position) {
            // pairs with: load_state
            memory_.store(words_.state(slot(position)), kData, std::memory_order_release);
            memory_.at(ChannelPoint::push_inner);
        }
        // pairs with: load_state, inspect
        const u8 was = memory_.exchange(words_.state(slot(tail)), kData, std::memory_order_acq_rel);
        memory_.at(ChannelPoint::push_published);
        const u64 began = tail;
        tail = end;
        if ((was & kEnd) == 0) return damaged("END, overwritten by another process,", began, was);
        return Handover::ok;
    }

    // After a push: wakes a consumer that waits. A bounded number of accesses, too.
    void announce_datum() { ring_bell_once(memory_, words_.data_bell()); }

    // Withdraws the datum at `position`, which stands in the ring or has been popped. True: its buffer is the producer's.
    bool cancel(u64 position) {
        u8* state = words_.state(slot(position));
        u8 seen = kData;
        // The consumer may inspect the datum, then take it: two changes, two tries.
        for (int tries = 0; tries < 2 && (seen & kData) != 0; ++tries) {
            // pairs with: inspect, take
            if (memory_.cas(state, seen, kHole, std::memory_order_acq_rel)) {
                memory_.at(ChannelPoint::cancelled);
                return true;
            }
        }
        return false;
    }

    // Completes what the last producer left, and returns where this one goes on. Only the holder of the producer's role
    // may call it; a crash in it is recovered by calling it again.
    Handover recover_producer(u64& tail) {
        memory_.at(ChannelPoint::mend_begin);
        bool found = false;
        for (u32 s = 0; s < geometry_.positions(); ++s) {
            const u8 state = load_state(s);
            if (!plausible_state(state)) return damaged("state", s, state);
            if ((state & kEnd) == 0) continue;
            const u64 position = load_position(s);
            if (slot(position) != s || position > kChannelPositionMax)
                return damaged("position of the END", s, position);
            if (!found || position < tail) tail = position;
            found = true;
        }
        if (!found) return damaged("no slot has the END; state", 0, load_state(0));
        for (u32 s = 0; s < geometry_.positions(); ++s) {
            if (s == slot(tail)) continue;
            const u8 state = load_state(s);
            const bool uncommitted = (state & kPending) != 0 || (state & kEnd) != 0 ||
                                     ((state & kData) != 0 && load_position(s) > tail);
            if (!uncommitted) continue;
            // The consumer takes no datum whose position is beyond the END, so a store is enough.
            // pairs with: load_state
            memory_.store(words_.state(s), kHole | kOverflow, std::memory_order_release);
            memory_.at(ChannelPoint::mend_slot);
        }
        return Handover::ok;
    }

    // The buffer in slot `s`, or nothing if the ring has none there. For a producer that starts.
    bool buffer_in(u32 s, u32& index) {
        if ((load_state(s) & kData) == 0) return false;
        index = memory_.load(words_.index(s), std::memory_order_relaxed);
        return true;
    }
    bool has_data(u32 s) { return (load_state(s) & kData) != 0; }

    // ---- the consumer's side. `head` is the next position, kept by the caller.

    // Takes the oldest datum, if there is one. `mark` becomes the owner of its buffer: the slot of this participant, plus 1;
    // or 0, the producer of the pool. In a channel that does not overflow it is wait-free. Else each turn is lost to a push
    // that was completed meanwhile, and `laps` bounds them.
    Handover pop(u64& head, u8 mark, u32 laps, Popped& out) {
        for (u32 overtaken = 0, turns = 0; overtaken <= laps;) {
            if (++turns > geometry_.positions()) {  // a lap, which the END should have ended
                if (beyond_end(head))
                    return damaged("no slot has the END; state", head, load_state(slot(head)));
                turns = 0;
                ++overtaken;
            }
            const u32 s = slot(head);
            const u8 seen = load_state(s);
            if (!plausible_state(seen)) [[unlikely]]
                return damaged("state", head, seen);
            if ((seen & kData) != 0) {
                const Handover result = take(head, mark, s, seen, out);
                if (result == Handover::ok) return result;
                if (result == Handover::corrupt) return result;
                ++overtaken;
            } else if ((seen & kEnd) != 0) {
                const Handover result = look_at_end(head, s, seen, out);
                if (result != Handover::starved) return result;
                ++overtaken;
            } else if ((seen & kPending) != 0) {
                pass(head, 1, out);  // a push freezes the slot, and owns what was there
            } else if ((seen & kOverflow) != 0) {
                pass(head, 1, out);  // a push froze the slot, and died
            } else {
                const Handover result = pass_gone(head, s, seen, out);
                if (result == Handover::corrupt) return result;
                overtaken += result == Handover::starved;
            }
        }
        return Handover::starved;
    }

    // Where the last consumer stood. Its marks are not this one's.
    u64 load_head() {
        empty_at = 0;
        return memory_.load(words_.head(), std::memory_order_acquire);  // pairs with: note_head
    }

    // Gives a buffer back to the producer.
    void release(u32 index) {
        // pairs with: owner_of
        memory_.store(words_.owner(index), 0, std::memory_order_release);
        memory_.at(ChannelPoint::released);
    }

    // Before the producer gives up its role: the participant of `mark` keeps the buffer until its release().
    void keep(u32 index, u8 mark) {
        // pairs with: owner_of (of the next producer)
        memory_.store(words_.owner(index), mark, std::memory_order_release);
    }

    // After a pop or release in a channel that does not overflow: wakes a producer that waits.
    void announce_space() { ring_bell_once(memory_, words_.space_bell()); }

    // ---- owners

    // 0: the producer's, unless the ring has it; else the slot of a participant, plus 1.
    u8 owner_of(u32 index) {
        // pairs with: release, clear_owner
        return memory_.load(words_.owner(index), std::memory_order_acquire);
    }

    // Gives the producer what the participant in `slot` held. The caller shares its lock byte, so that it is dead for good.
    u32 clear_owner(u8 participant) {
        u32 cleared = 0;
        const u8 mark = static_cast<u8>(participant + 1);
        for (u32 index = 0; index < geometry_.pool(); ++index) {
            u8 found = owner_of(index);
            // pairs with: owner_of
            if (found != mark ||
                !memory_.cas(words_.owner(index), found, 0, std::memory_order_acq_rel))
                continue;
            memory_.at(ChannelPoint::mend_owner);
            ++cleared;
        }
        return cleared;
    }

    const Words& words() const { return words_; }
    const ChannelGeometry& geometry() const { return geometry_; }
    u32 slot(u64 position) const { return static_cast<u32>(position % geometry_.positions()); }

 private:
    u8 load_state(u32 s) {
        // pairs with: push, recover_producer
        return memory_.load(words_.state(s), std::memory_order_acquire);
    }
    u64 load_position(u32 s) { return memory_.load(words_.position(s), std::memory_order_relaxed); }

    // No slot has a position that the END can have (C2). Positions only grow, so that one look at each is enough.
    bool beyond_end(u64 head) {
        for (u32 s = 0; s < geometry_.positions(); ++s)
            if (load_position(s) >= head) return false;
        return true;
    }

    // Marks the slot, so that a change of its words is noticed. False: it has changed already.
    bool inspect(u32 s, u8& seen) {
        if ((seen & kInspected) != 0) return true;
        u8 expected = seen;
        // pairs with: push
        if (!memory_.cas(words_.state(s), expected, seen | kInspected, std::memory_order_acquire))
            return false;
        seen |= kInspected;
        memory_.at(ChannelPoint::pop_inspected);
        return true;
    }

    // Whether the words that were read after inspect() are whole. A load would not do: on a weak machine they may be newer
    // than the state that it finds. A read-modify-write finds the newest state.
    bool unchanged(u32 s, u8 seen) {
        u8 expected = seen;
        // pairs with: push
        return memory_.cas(words_.state(s), expected, seen, std::memory_order_acq_rel);
    }

    void pass(u64& head, u64 lost, Popped& out) {
        ++head;
        out.lost += lost;
    }

    // Everything before `position` is gone.
    void jump(u64& head, u64 position, Popped& out) {
        out.lost += position - head;
        head = position;
        memory_.at(ChannelPoint::pop_jumped);
    }

    // For the next consumer, if this one dies: it goes on from here. Only a pop moves it, so that what is lost is counted.
    void note_head(u64 head) {
        memory_.store(words_.head(), head, std::memory_order_release);  // pairs with: load_head
    }

    // `starved`: the producer was quicker; look again.
    Handover take(u64& head, u8 mark, u32 s, u8 seen, Popped& out) {
        if (!inspect(s, seen)) return Handover::starved;
        const u64 position = load_position(s);
        const u32 index = memory_.load(words_.index(s), std::memory_order_relaxed);
        memory_.at(ChannelPoint::pop_read);
        if (position != head) {
            if (!unchanged(s, seen)) return Handover::starved;
            // A lap behind at least. The END is after `position`, so that what is n - 1 before it is gone.
            if (position < head || slot(position) != s)
                return damaged("position of a datum", head, position);
            jump(head, position + 2 - geometry_.positions(), out);
            return Handover::starved;
        }
        if (index >= geometry_.pool()) {
            if (!unchanged(s, seen)) return Handover::starved;
            return damaged("index of a buffer", head, index);
        }
        if (!claim(index, mark)) {
            if (!unchanged(s, seen)) return Handover::starved;
            return damaged("owner of a buffer in the ring", head, owner_of(index));
        }
        memory_.at(ChannelPoint::pop_claimed);
        // pairs with: push (release: the claim before it; and the slot's words were read)
        if (!memory_.cas(words_.state(s), seen, kEmpty, std::memory_order_acq_rel)) {
            unclaim(index, mark);
            return Handover::starved;
        }
        memory_.at(ChannelPoint::pop_taken);
        out.position = head;
        out.index = index;
        note_head(++head);
        memory_.at(ChannelPoint::pop_noted);
        return Handover::ok;
    }

    // Intends to own a buffer. The compare-and-swap fails if a producer that got the buffer back keeps it, see keep().
    bool claim(u32 index, u8 mark) {
        if (mark == 0) {  // on the way back, where the owner is still the consumer
            memory_.store(words_.owner(index), mark, std::memory_order_relaxed);
            return true;
        }
        u8 none = 0;
        return memory_.cas(words_.owner(index), none, mark, std::memory_order_relaxed);
    }
    // The intent came to nothing. Nothing is to be done if a producer keeps the buffer by now.
    void unclaim(u32 index, u8 mark) {
        // pairs with: owner_of
        memory_.cas(words_.owner(index), mark, 0, std::memory_order_release);
    }

    // EMPTY: a consumer that died took the datum. HOLE: it was withdrawn. The datum can be of a later lap than `head`.
    Handover pass_gone(u64& head, u32 s, u8 seen, Popped& out) {
        const u64 position = load_position(s);
        if (position == head) {
            pass(head, 0, out);
            return Handover::ok;
        }
        if (!unchanged(s, seen)) return Handover::starved;
        if (position < head || slot(position) != s)
            return damaged("no slot has the END; state", head, seen);
        if (seen == kHole) {  // as for a datum
            jump(head, position + 2 - geometry_.positions(), out);
        } else {  // the consumer that took it has passed all that was before
            jump(head, position, out);
            pass(head, 0, out);
        }
        return Handover::ok;
    }

    Handover look_at_end(u64& head, u32 s, u8 seen, Popped& out) {
        // The mark is this consumer's, and so is the position: it is the END that it has looked at before.
        if (empty_at == head && (seen & kInspected) != 0) return Handover::empty;
        if (!inspect(s, seen)) return Handover::starved;
        const u64 position = load_position(s);
        if (!unchanged(s, seen)) return Handover::starved;
        if (position == head) {
            empty_at = head;
            return Handover::empty;
        }
        if (position < head || slot(position) != s)
            return damaged("position of the END", head, position);
        // Without OVERFLOW, the last of the datums passed over was withdrawn, not displaced.
        const bool withdrawn = (seen & kOverflow) == 0;
        jump(head, position + 1 - geometry_.positions(), out);
        if (withdrawn) --out.lost;
        return Handover::starved;
    }

    Handover damaged(const char* what, u64 position, u64 value) {
        fault = {what, position, value};
        return Handover::corrupt;
    }

    Memory& memory_;
    ChannelGeometry geometry_;
    Words words_;
};

}  // namespace holdfast
