// The state that every operation on a queue shares: its words, validated when they are loaded, and its bells.
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

// The result of an operation, as its caller sees it.
enum class Verdict {
    ok,
    full,       // no room; `blocker` names the holder of the oldest space
    empty,      // nothing to take; `blocker` names the writer or holder in the way, if there is one
    closed,     // the end of the stream
    fenced,     // consumers passed over our block while we wrote it; nothing was put
    corrupt,    // a word holds what no participant can have written; `fault` says which
    contended,  // other participants were quicker, very often in a row; try again
    exhausted,  // 52 bits of positions are used up
};

// The result of one look at the shared words. An operation takes several, and turns the last into a `Verdict`.
enum class Look {
    found,    // it is there: a validated block, room, a message
    nothing,  // it is not there
    moved,    // another participant moved on meanwhile: look again
    blocked,  // a block in use is in the way
    closed,   // the stream ends here
    corrupt,  // as Verdict::corrupt
};

// Where a walk over blocks started: the word (H, R or T), and the position that it held then.
struct Start {
    const u64* word;
    u64 position;
};

// A descriptor, taken apart. Only if `look` is found, the rest describes a block at `position`.
struct LoadedBlock {
    Look look = Look::nothing;
    u64 position = 0;
    u64 word = 0;
    State state = State::end;
    u64 length = 0;
    u32 owner = 0;

    u64 end() const { return position + length; }
    // R never passes such a block, and a block that was taken never becomes one again.
    bool awaits_first_taker() const {
        return state == State::ready || state == State::reserved || state == State::end;
    }
    bool held() const {
        return state == State::taken || state == State::reserved || state == State::fenced;
    }
};

// How load_block checks the length of a READY block.
enum class LengthCheck {
    mark,    // against its mark, as in every other state
    header,  // not yet: the caller takes the block first, then reads its header
};

// The block in the way of an operation that cannot go on.
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

    Look corrupt(const char* what, u64 position, u64 value) {
        fault = {what, position, value};
        return Look::corrupt;
    }

    // Changes when any participant gets on.
    u64 trace() {
        u64 sum = 0;
        for (const u64* word : {words.head, words.read, words.tail, words.made})
            sum = sum * 0x9E3779B97F4A7C15u + memory.load(word, std::memory_order_relaxed);
        return sum;
    }

    // The verdict of a loop whose patience is over.
    Verdict worn_out(const Patience& patience, const char* what, u64 position = 0) {
        if (patience.others_get_on(*this)) return Verdict::contended;
        corrupt(what, position, 0);
        return Verdict::corrupt;
    }

    // False: the word holds what no participant can have written.
    bool load_position(const u64* word, u64& position) {
        u64 value = memory.load(word, std::memory_order_acquire);  // pairs with: advance
        position = unsealed(value);
        if (seal_holds(value) && position >= geometry.granules()) [[likely]]
            return true;
        const char* name = word == words.head ? "head" : word == words.read ? "read" : "tail";
        corrupt(name, position, value);
        return false;
    }

    // Loads and validates the block at `position`, on a walk from `start`.
    // nothing: the position is not claimed in this lap. moved: T has passed it; start the walk again.
    template <LengthCheck check = LengthCheck::mark>
    [[gnu::always_inline]] inline LoadedBlock load_block(const Start& start, u64 position) {
        const u64 word = load_descriptor(position);
        const auto block = [&](Look look) {
            return LoadedBlock{look,
                               position,
                               word,
                               Geometry::state(word),
                               geometry.length(word),
                               Geometry::owner(word)};
        };
        const Tag tag = geometry.tag(word, position);
        if (tag == Tag::older) return block(Look::nothing);
        if (tag == Tag::newer) [[unlikely]]
            return block(moved_or_corrupt(start, position, word));
        const bool by_header =
            check == LengthCheck::header && Geometry::state(word) == State::ready;
        if (by_header ? geometry.plausible(word, position) : sound(word, position)) [[likely]]
            return block(Look::found);
        return block(corrupt("descriptor", position, word));
    }

    // After a newer tag at `position`: T has moved past it, and so have R and H (I2). If the start of the walk has not
    // moved, the descriptor is wrong.
    Look moved_or_corrupt(const Start& start, u64 position, u64 word) {
        u64 now;
        if (!load_position(start.word, now)) return Look::corrupt;
        return now != start.position ? Look::moved : corrupt("descriptor", position, word);
    }

    // Moves H, R or T on. False: another participant did the same.
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

    // An overwritten descriptor would lead a walk into the middle of other blocks. So its length counts only if the block
    // fits into the ring and the mark, if there is one, agrees. A word that has changed meanwhile was right.
    bool sound(u64 word, u64 position) {
        if (!geometry.plausible(word, position)) return false;
        Mark found = load_mark(position);
        return !found.current || !found.known || found.length == geometry.length(word) ||
               load_descriptor(position) != word;
    }

    // Writes the mark of our block. `length` 0: it will change (an extent of several messages), so it is not checked.
    void stamp(u64 position, u64 length, u32 deliveries) {
        memory.note(&side(position)->claimed_ms);
        memory.store(&side(position)->mark, geometry.mark(position, length, deliveries),
                     std::memory_order_release);  // pairs with: load_mark
    }

    // Writes the mark of a block that we have taken, if it has no length yet: the first of several messages.
    void stamp_taken(u64 position, u64 length, u32 deliveries) {
        memory.note(&side(position)->claimed_ms);
        if (!load_mark(position).known) stamp(position, length, deliveries);
    }

    // Before `returned`, a RETRY, is taken: moves its count into the mark, where a recoverer of the taker finds it.
    // By compare-and-swap, upwards and within the lap: several may do this at once, and a late one changes nothing.
    void keep_count(u64 position, u64 returned) {
        const u32 count = Geometry::deliveries(returned);
        u64* mark = &side(position)->mark;
        u64 found = memory.load(mark, std::memory_order_acquire);  // pairs with: stamp, keep_count
        for (;;) {
            Tag tag = geometry.tag(found, position);
            if (tag == Tag::newer) return;                 // the block is newer, too
            Mark old = geometry.mark_of(found, position);  // an older one was overwritten
            if (tag == Tag::current && old.deliveries >= count) return;
            if (memory.cas(mark, found, geometry.mark(position, old.known ? old.length : 0, count),
                           std::memory_order_acq_rel))  // pairs with: load_mark
                return;
        }
    }

    // The deliveries of a TAKEN block that will have ended when this one does. All recoverers compute the same number,
    // since the mark of a taken block stays. A mark of another lap was overwritten; the message must not look new.
    u32 deliveries_with_this(u64 position) { return load_mark(position).deliveries + 1; }

    // Notifies the scanners that a RETRY may stand behind R.
    void announce_return() {
        memory.fetch_add(words.made, 1, std::memory_order_release);  // pairs with: returns_pending
    }

    void ring(u32* bell) { ring_bell(memory, bell); }
    u32 listen(u32* bell) { return listen_to(memory, bell); }
};

}  // namespace holdfast
