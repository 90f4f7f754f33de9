// What every operation on a queue needs: its words, read with suspicion, and its bells.
#pragma once

#include "holdfast/base/points.hpp"
#include "holdfast/queue/layout.hpp"
#include "holdfast/shm/bell.hpp"
#include "holdfast/shm/fault.hpp"

namespace holdfast {

HOLDFAST_POINTS(QueuePoint,
                // put: claim, write, commit; for the pieces of a block see BlockPoint
                put_begin, put_claimed, put_committed, put_moved, many_inner, pad_claimed,
                // take, settle, give back, reclaim
                take_claimed, take_moved, settle_begin, settled, back_begin, back_returned,
                back_announced, reclaimed,
                // recovery, fencing, end of stream
                recover_begin, recover_blocking, recover_decided, recover_block, recover_scanned,
                recover_announced, fence_done, close_marked);

enum class Verdict {
    ok,
    full,   // no room; `blocker` says who holds the oldest space
    empty,  // nothing to take; `blocker` names a writer or holder whom we wait for, if there is one
    closed,     // the end of the stream
    fenced,     // our block was skipped over while we wrote it; nothing was put
    corrupt,    // a word cannot be what it says; `fault` says which
    contended,  // the others were quicker, very often in a row; nothing is wrong, try again
    exhausted,  // 52 bits of positions are used up
};

// Why an operation cannot go on: the block in the way.
struct Blocker {
    static constexpr u32 nobody = 0xffffffffu;
    u32 owner = nobody;
    u64 position = 0;
    u64 word = 0;
};

template <class Memory>
struct QueueState {
    Memory& memory;
    Geometry geometry;
    QueueWords words;
    u32 me;
    Delivery delivery;
    u32 stall_limit_ms;
    Blocker blocker{};
    Fault fault{};

    QueueState(Memory& memory_, const Geometry& geometry_, std::byte* base, u32 me_,
               Delivery delivery_, u32 stall_limit_ms_)
        : memory(memory_),
          geometry(geometry_),
          words(base, geometry_),
          me(me_),
          delivery(delivery_),
          stall_limit_ms(stall_limit_ms_) {}

    u64* descriptor(u64 position) const { return words.descriptors + geometry.index(position); }
    SideEntry* side(u64 position) const { return words.sides + geometry.index(position); }
    std::byte* block(u64 position) const {
        return words.ring + geometry.index(position) * kGranule;
    }

    Verdict corrupt(const char* what, u64 position, u64 value) {
        fault = {what, position, value};
        return Verdict::corrupt;
    }

    // Changes when anybody gets on.
    u64 trace() {
        u64 sum = 0;
        for (const u64* word : {words.head, words.read, words.tail, words.made})
            sum = sum * 0x9E3779B97F4A7C15u + memory.load(word, std::memory_order_relaxed);
        return sum;
    }

    // A loop has run out of patience.
    Verdict worn_out(const Patience& patience, const char* what, u64 position = 0) {
        return patience.others_get_on(*this) ? Verdict::contended : corrupt(what, position, 0);
    }

    // False: the word was overwritten by somebody who is not one of us.
    bool load_position(const u64* word, u64& position) {
        u64 value = memory.load(word, std::memory_order_acquire);  // pairs with: advance
        position = unsealed(value);
        if (seal_holds(value) && position >= geometry.granules()) [[likely]]
            return true;
        const char* name = word == words.head ? "head" : word == words.read ? "read" : "tail";
        corrupt(name, position, value);
        return false;
    }

    // A newer tag at or after `from`, which `word` (H, R or T) said a moment ago: T has moved past there, and so have R and
    // H (I2). If the word still says `from`, it is the descriptor that lies.
    Verdict overtaken_or_corrupt(const u64* word, u64 from, u64 position, u64 found) {
        u64 now;
        if (!load_position(word, now)) return Verdict::corrupt;
        return now != from ? Verdict::ok : corrupt("descriptor", position, found);
    }

    // Moves H, R or T on; whoever loses this race was overtaken by somebody who did the same.
    bool advance(u64* word, u64 from, u64 to) {
        u64 expected = sealed(from);
        return memory.cas(word, expected, sealed(to),
                          std::memory_order_acq_rel);  // pairs with: load_position
    }

    u64 load_descriptor(u64 position) {
        return memory.load(
            descriptor(position),
            std::memory_order_acquire);  // pairs with: commit, settle, give_back, repair
    }

    Mark load_mark(u64 position) {
        u64 mark = memory.load(&side(position)->mark,
                               std::memory_order_acquire);  // pairs with: stamp, keep_count
        return geometry.mark_of(mark, position);
    }

    // A descriptor that was overwritten leads past blocks that it has nothing to do with. So its length is believed only if
    // the block fits the ring and the mark, where there is one, agrees. (A word that has changed meanwhile was right.)
    bool sound(u64 word, u64 position) {
        if (!geometry.plausible(word, position)) return false;
        Mark found = load_mark(position);
        return !found.current || !found.known || found.length == geometry.length(word) ||
               load_descriptor(position) != word;
    }

    // By the one whose block it is. `length` 0: it is not to be checked, because it will change (an extent of several
    // messages).
    void stamp(u64 position, u64 length, u32 deliveries) {
        memory.note(&side(position)->claimed_ms);
        memory.store(&side(position)->mark, geometry.mark(position, length, deliveries),
                     std::memory_order_release);  // pairs with: load_mark
    }

    // Of a block that we have taken. The first of several messages has had no length in its mark until now.
    void stamp_taken(u64 position, u64 length, u32 deliveries) {
        memory.note(&side(position)->claimed_ms);
        if (!load_mark(position).known) stamp(position, length, deliveries);
    }

    // Before `returned`, a RETRY, is taken: its count moves into the mark, where one who recovers the taker finds it.
    // By compare-and-swap, upwards and within the lap: many may do this at once, and one who is late changes nothing.
    void keep_count(u64 position, u64 returned) {
        const u32 count = Geometry::deliveries(returned);
        u64* mark = &side(position)->mark;
        u64 found = memory.load(mark, std::memory_order_acquire);  // pairs with: stamp, keep_count
        for (;;) {
            Tag tag = geometry.tag(found, position);
            if (tag == Tag::newer) return;                 // so is the block
            Mark old = geometry.mark_of(found, position);  // an older one was overwritten
            if (tag == Tag::current && old.deliveries >= count) return;
            if (memory.cas(mark, found, geometry.mark(position, old.known ? old.length : 0, count),
                           std::memory_order_acq_rel))  // pairs with: load_mark
                return;
        }
    }

    // Of a TAKEN block: the deliveries that will have ended when this one does. The same for all who ask, since the mark of
    // a taken block stays. (One that is not of this lap was overwritten; the message must not look new.)
    u32 deliveries_with_this(u64 position) { return load_mark(position).deliveries + 1; }

    // Tells the scanners that a RETRY may stand behind R.
    void announce_return() {
        memory.fetch_add(words.made, 1, std::memory_order_release);  // pairs with: returns_pending
    }

    void ring(u32* bell) { ring_bell(memory, bell); }
    u32 listen(u32* bell) { return listen_to(memory, bell); }
};

}  // namespace holdfast
