// The queue: many producers, many consumers, blocks of any size, and nobody whose death stops the others.
//
// Ownership of a block is one 64-bit word, its descriptor, and changes by compare-and-swap alone:
//
//          claim              commit              take               settle
//   older ───────▶ RESERVED ─────────▶ READY ─────────▶ TAKEN ─────────────▶ DONE ──▶ space (T moves past it)
//     │               │ fence                             │ ▲
//     │ close         ▼                          give back│ │take
//     ▼            FENCED ──(owner died or gave up)──┐    ▼ │
//    END              │                              │   RETRY
//                  RESERVED ──(owner died)──────────▶SKIP ──▶ space
//
// Claiming the descriptor at the head *is* the record of intent: it names the claimant and the extent, so a survivor
// knows all there is to know. H and R are hints that anyone may correct; T is the only one that frees space.
// The page docs/guide/queue.md numbers the invariants (I1 …) that the comments here cite.
//
// Every `Verdict` but ok leaves the queue as it was, but for help given to others on the way.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "holdfast/queue/recovery.hpp"

namespace holdfast {

struct Payload {
    const std::byte* data;
    u64 size;
};

struct Taken {
    u64 position;
    u64 word;         // the descriptor as we own it
    u32 redelivered;  // deliveries before this one
};

template <class Memory>
class Queue : public QueueState<Memory> {
    using Base = QueueState<Memory>;

 public:
    using Base::advance, Base::announce_return, Base::block, Base::blocker, Base::corrupt,
        Base::delivery, Base::descriptor, Base::geometry, Base::keep_count, Base::listen,
        Base::overtaken_or_corrupt, Base::load_descriptor, Base::load_position, Base::me,
        Base::load_mark, Base::memory, Base::ring, Base::stall_limit_ms, Base::sound, Base::stamp,
        Base::stamp_taken, Base::words, Base::worn_out;
    using Base::Base;

    struct Claim {
        u64 position;
        u64 length;
        u64 word;
        u32 fences;  // in the mark until the commit
    };

    Recovered recovered{};  // by this object, since it was made
    u64 fenced_others = 0;
    u64 put_end = 0;  // the position behind everything that this object has put

    // Puts the payloads into one extent: consumers see all of them at once, or, if we die, none.
    // `probe`: when there is no room, ask the kernel whether whoever holds the oldest space still lives.
    Verdict put(std::span<const Payload> payloads, u64 time, bool full_checksum, bool probe) {
        u64 length = 0;
        for (const Payload& payload : payloads) length += Geometry::blocks_granules(payload.size);
        memory.at(QueuePoint::put_begin);
        Claim claim;
        if (Verdict verdict = reserve(length, payloads.size() == 1, claim, probe);
            verdict != Verdict::ok)
            return verdict;
        write(claim, payloads, time, full_checksum);
        u64 first = Geometry::blocks_granules(payloads[0].size);
        if (claim.fences != 0) stamp(claim.position, payloads.size() == 1 ? length : 0, 0);
        Verdict verdict = commit(claim, first);
        if (verdict == Verdict::ok) put_end = std::max(put_end, claim.position + claim.length);
        note_fence(verdict, length);
        ring(verdict == Verdict::ok ? words.data_bell : words.space_bell);
        return verdict;
    }

    // Takes up to `wanted` messages. ok: at least one, `count` of them, each owned by us until settled or given back.
    // `probe`: where we would have to wait, ask the kernel whether those for whom we wait still live.
    // `deliveries_max`: leave aside what came back that often (0: leave nothing aside).
    Verdict take(Taken* taken, u32 wanted, u32& count, bool probe, u32 deliveries_max = 0) {
        count = 0;
        Patience patience(geometry.granules());
        while (!patience.over(*this)) {
            blocker = {};
            if (returns_pending()) {
                Verdict verdict = take_returned(taken[0], deliveries_max, patience);
                if (verdict == Verdict::ok) count = 1;
                if (verdict != Verdict::empty) return verdict;
            }
            u64 read;
            if (!load_position(words.read, read)) return Verdict::corrupt;
            u64 position = read;
            Verdict verdict = take_run(taken, wanted, count, position, deliveries_max);
            if (position != read) {
                memory.at(QueuePoint::take_claimed);
                advance(words.read, read, position);
                memory.at(QueuePoint::take_moved);
            }
            if (count > 0) return Verdict::ok;
            if (verdict == Verdict::corrupt) return verdict;
            if (position != read ||
                verdict == Verdict::ok) {  // moved past what is over, or lost a race: look anew
                memory.again();
                continue;
            }
            if (!probe || !look_for_dead(position, verdict, deliveries_max)) return verdict;
            memory.again();
        }
        return worn_out(patience, "no progress in take");
    }

    // The message is done with; its space may be used again. False: the block is not ours, somebody overwrote its word.
    bool settle(const Taken& taken) {
        memory.at(QueuePoint::settle_begin);
        u64 expected = taken.word;
        bool ours = memory.cas(
            descriptor(taken.position), expected, Geometry::with(taken.word, State::done, me),
            std::memory_order_release);  // pairs with: load_descriptor in reclaim
        memory.at(QueuePoint::settled);
        return ours;
    }

    // To be called once after one or more calls of settle.
    void announce_space() { ring(words.space_bell); }

    // The message goes to whoever asks next. `counts`: this was a delivery. Without it, nobody has seen the message, and
    // that is no second delivery even where there may be only one.
    bool give_back(const Taken& taken, bool counts = true) {
        if (counts && delivery == Delivery::at_most_once) {
            bool ours = settle(taken);
            announce_space();
            return ours;
        }
        memory.at(QueuePoint::back_begin);
        u64 expected = taken.word;
        if (!memory.cas(descriptor(taken.position), expected,
                        Geometry::returned(taken.word, taken.redelivered + (counts ? 1 : 0)),
                        std::memory_order_release))  // pairs with: load_descriptor in take_returned
            return false;
        memory.at(QueuePoint::back_returned);
        announce_return();
        memory.at(QueuePoint::back_announced);
        ring(words.data_bell);
        return true;
    }

    // End of stream: the descriptor at the head becomes END, and nobody can claim beyond it. One granule is always kept
    // free for it, so closing never waits.
    Verdict close() {
        Patience patience(geometry.granules());
        while (!patience.over(*this)) {
            u64 head, word;
            if (!load_position(words.head, head)) return Verdict::corrupt;
            word = load_descriptor(head);
            Tag tag = geometry.tag(word, head);
            if (tag == Tag::current && Geometry::state(word) == State::end) return Verdict::ok;
            if (tag == Tag::current) {
                if (!sound(word, head)) return corrupt("descriptor", head, word);
                advance(words.head, head, head + geometry.length(word));
            } else if (
                tag == Tag::older &&
                memory.cas(
                    descriptor(head), word, geometry.word(head, 1, State::end, me),
                    std::
                        memory_order_acq_rel)) {  // pairs with: load_descriptor in reserve, take_run
                memory.at(QueuePoint::close_marked);
                ring(words.data_bell);
                ring(words.space_bell);
                return Verdict::ok;
            }
            if (tag == Tag::newer) {
                if (Verdict verdict = overtaken_or_corrupt(words.head, head, head, word);
                    verdict != Verdict::ok)
                    return verdict;
            }
            memory.again();
        }
        return worn_out(patience, "no progress in close");
    }

    // Recovers `owner` if the kernel says that it is dead. `position`, `word`: its block that is in our way, if any.
    bool recover_if_dead(u32 owner, u64 position = 0, u64 word = 0) {
        return holdfast::recover_if_dead(memory, me, owner, [&] {
            const Recovered sum = recover_holding(*this, owner, position, word);
            recovered += sum;
            return sum.complete;
        });
    }

    // Gives a living writer's unfinished block up: consumers pass over it, its space stays its own until it dies or
    // notices. Only where the user set a limit, and only for what we ourselves have seen unchanged for that long.
    bool fence_if_stalled(u64 position, u64 word) {
        if (stall_limit_ms == kNoStallLimit) return false;
        u64 now = memory.now_ms();
        if (watched_word_ != word || watched_position_ != position) {
            watched_word_ = word;
            watched_position_ = position;
            watched_since_ms_ = now;
        }
        // The mark of an unfinished block says how often its put was fenced before: each time doubles the limit, so that a
        // copy that takes longer than the limit ends.
        const u32 doublings = std::min(load_mark(position).deliveries, kStallDoublingsMax);
        if (now - watched_since_ms_ < u64{stall_limit_ms} << doublings) return false;
        if (memory.cas(descriptor(position), word,
                       Geometry::with(word, State::fenced, Geometry::owner(word)),
                       std::memory_order_acq_rel)) {  // pairs with: commit
            ++fenced_others;
            memory.at(QueuePoint::fence_done);
            ring(words.data_bell);
        }
        return true;
    }

 private:
    // Claims `length` granules at the head; `single`: for one message.
    Verdict reserve(u64 length, bool single, Claim& claim, bool probe) {
        Patience patience(geometry.granules());
        while (!patience.over(*this)) {
            blocker = {};
            u64 head;
            if (!load_position(words.head, head)) return Verdict::corrupt;
            if (head + 2 * geometry.granules() > kPositionMax) return Verdict::exhausted;
            u64 word = load_descriptor(head);
            Tag tag = geometry.tag(word, head);
            if (tag == Tag::current) {
                if (Geometry::state(word) == State::end) return Verdict::closed;
                if (!sound(word, head)) return corrupt("descriptor", head, word);
                advance(words.head, head,
                        head + geometry.length(word));  // its claimant is slow, or dead
                memory.again();
                continue;
            }
            if (tag == Tag::newer) {  // our `head` is a lap old
                if (Verdict verdict = overtaken_or_corrupt(words.head, head, head, word);
                    verdict != Verdict::ok)
                    return verdict;
                memory.again();
                continue;
            }
            // A block does not cross the end of the ring: what is left before it becomes a block to skip.
            u64 rest = geometry.granules() - geometry.index(head);
            bool pads = length > rest;
            u64 extent = pads ? rest : length;
            if (head + extent + 1 > tail_seen_ + geometry.granules()) {
                Verdict verdict = make_room(head + extent + 1, probe);
                if (verdict == Verdict::empty) {
                    memory.again();
                    continue;
                }
                if (verdict != Verdict::ok) return verdict;
            }
            u64 wanted = geometry.word(head, extent, pads ? State::skip : State::reserved, me);
            if (memory.cas(descriptor(head), word, wanted,
                           std::memory_order_acq_rel)) {  // pairs with: load_descriptor
                memory.at(pads ? QueuePoint::pad_claimed : QueuePoint::put_claimed);
                const u32 fences = fences_of(length);
                if (!pads) stamp(head, single ? extent : 0, fences);
                advance(words.head, head, head + extent);
                if (!pads) {
                    memory.at(QueuePoint::put_moved);
                    claim = {head, extent, wanted, fences};
                    return Verdict::ok;
                }
            }
            memory.again();
        }
        return worn_out(patience, "no progress in put");
    }

    // ok: everything before `end` minus one lap is free. empty: something changed, look anew. Else full, or worse.
    Verdict make_room(u64 end, bool probe) {
        u64 tail, word;
        if (!load_position(words.tail, tail)) return Verdict::corrupt;
        tail_seen_ = tail;
        if (end <= tail + geometry.granules()) return Verdict::ok;
        Verdict verdict = reclaim(tail, word);
        if (verdict == Verdict::ok && end > tail + geometry.granules())
            return gap_or_moved(tail, tail, word);
        if (verdict != Verdict::full) return verdict;
        State state = Geometry::state(word);
        if (probe && (state == State::ready || state == State::reserved || state == State::end)) {
            u64 read;  // R never passes such a block, and a block that was taken never becomes one again
            if (!load_position(words.read, read)) return Verdict::corrupt;
            if (read > tail && load_descriptor(tail) == word)
                return corrupt("a block that nobody took, before the read position", tail, word);
        }
        bool held = state == State::taken || state == State::reserved || state == State::fenced;
        blocker = {held ? Geometry::owner(word) : Blocker::nobody, tail, word};
        if (probe && held && recover_if_dead(Geometry::owner(word), tail, word))
            return Verdict::empty;
        return Verdict::full;
    }

    // Moves T over what is settled or skipped, with one compare-and-swap: while T stays, none of that changes.
    // empty: it moved, look anew. full: the block at `tail`, whose descriptor is `word`, is in use.
    // ok: there is no block at `tail`.
    Verdict reclaim(u64& tail, u64& word) {
        u64 read;
        if (!load_position(words.tail, tail) || !load_position(words.read, read))
            return Verdict::corrupt;
        u64 position = tail;
        for (u32 blocks = 0; blocks < kReclaimMax; ++blocks) {
            if (position >= read && position != tail) break;
            word = load_descriptor(position);
            Tag tag = geometry.tag(word, position);
            if (tag == Tag::newer) {
                Verdict verdict = overtaken_or_corrupt(words.tail, tail, position, word);
                return verdict == Verdict::ok ? Verdict::empty : verdict;
            }
            if (tag == Tag::older)
                return position == read ? Verdict::ok : gap_or_moved(tail, position, word);
            if (!sound(word, position)) return corrupt("descriptor", position, word);
            State state = Geometry::state(word);
            if (state != State::done && state != State::skip) break;
            if (position >= read) {  // I2: R goes first
                advance(words.read, read, position + geometry.length(word));
                return Verdict::empty;
            }
            position += geometry.length(word);
        }
        if (position == tail) return Verdict::full;
        advance(words.tail, tail, position);
        memory.at(QueuePoint::reclaimed);
        return Verdict::empty;
    }

    // An older tag where a block must be: either T has moved since we read it, or the chain is broken (I3).
    Verdict gap_or_moved(u64 tail, u64 position, u64 word) {
        u64 now;
        if (!load_position(words.tail, now)) return Verdict::corrupt;
        return now != tail ? Verdict::empty : corrupt("gap in the chain of blocks", position, word);
    }

    // Counted by size, because a copy's time depends on it. A small message that gets through says nothing about large
    // ones; a large one that was fenced, and perhaps given up, does not raise the limit of small ones.
    void note_fence(Verdict verdict, u64 length) {
        const auto size = static_cast<std::size_t>(std::bit_width(length));
        if (verdict == Verdict::fenced) {
            ++fenced_in_a_row_[size];
            fenced_any_ = true;
        } else if (verdict == Verdict::ok && fenced_any_) [[unlikely]] {
            std::fill_n(fenced_in_a_row_.begin(), size + 1, 0u);
            fenced_any_ = std::ranges::any_of(fenced_in_a_row_, [](u32 count) { return count; });
        }
    }
    u32 fences_of(u64 length) const {
        return fenced_in_a_row_[static_cast<std::size_t>(std::bit_width(length))];
    }

    // Header and payload of each block, then the descriptors of all but the first, which nobody can reach yet.
    void write(const Claim& claim, std::span<const Payload> payloads, u64 time,
               bool full_checksum) {
        u64 position = claim.position;
        for (const Payload& payload : payloads) {
            const u8 flags = full_checksum ? kFullChecksum : u8{0};
            const BlockHeader header{
                kBlockMagic, kMessageBlock, flags, static_cast<u32>(payload.size),
                position,    time,          0,     0};
            memory.write_block(block(position), header, payload.data, payload.size);
            u64 length = Geometry::blocks_granules(payload.size);
            if (position != claim.position) {
                stamp(position, length, 0);
                memory.store(descriptor(position),
                             geometry.word(position, length, State::ready, me),
                             std::memory_order_release);  // pairs with: load_descriptor in take_run
                memory.at(QueuePoint::many_inner);
            }
            position += length;
        }
    }

    // The put takes effect here, or not at all.
    Verdict commit(const Claim& claim, u64 first_length) {
        u64 expected = claim.word;
        if (memory.cas(descriptor(claim.position), expected,
                       geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_release)) {  // pairs with: load_descriptor in take_run
            memory.at(QueuePoint::put_committed);
            return Verdict::ok;
        }
        if (expected != Geometry::with(claim.word, State::fenced, me))
            return corrupt("descriptor of a block being written", claim.position, expected);
        // We write no more: the space can be used again.
        memory.cas(descriptor(claim.position), expected,
                   Geometry::with(claim.word, State::skip, me),
                   std::memory_order_release);  // pairs with: load_descriptor in reclaim
        return Verdict::fenced;
    }

    // Blocks from `position` on that can be taken now; moves `position` past them and past what is over.
    // ok with nothing taken: look anew.
    Verdict take_run(Taken* taken, u32 wanted, u32& count, u64& position, u32 deliveries_max) {
        const u64 read = position, limit = position + geometry.granules();
        while (count < wanted && position < limit) {
            u64 word = load_descriptor(position);
            Tag tag = geometry.tag(word, position);
            if (tag == Tag::older) return Verdict::empty;
            if (tag == Tag::newer) return overtaken_or_corrupt(words.read, read, position, word);
            State state = Geometry::state(word);
            // A block that waits for its first taker has a header, which tells the length as well (below).
            if (state == State::ready ? !geometry.plausible(word, position)
                                      : !sound(word, position))
                return corrupt("descriptor", position, word);
            switch (state) {
                case State::ready:
                case State::retry: {
                    bool returned = state == State::retry;
                    u32 before = returned ? Geometry::deliveries(word) : 0;
                    if (returned && deliveries_max != 0 && before >= deliveries_max) {
                        announce_return();  // R passes it by: I6
                        break;
                    }
                    if (returned) keep_count(position, word);
                    u64 mine = Geometry::with(word, State::taken, me);
                    // pairs with: commit, give_back, repair
                    if (!memory.cas(descriptor(position), word, mine, std::memory_order_acq_rel))
                        return Verdict::ok;
                    if (!header_fits(position, mine) && !sound(mine, position))
                        return corrupt("descriptor", position, mine);
                    if (count == 0) stamp_taken(position, geometry.length(word), before);
                    taken[count++] = {position, mine, before};
                    break;
                }
                case State::reserved:
                    blocker = {Geometry::owner(word), position, word};
                    return Verdict::empty;
                case State::end:
                    return Verdict::closed;
                default:
                    break;  // taken, done, skipped, fenced: not for us
            }
            position += geometry.length(word);
        }
        return Verdict::ok;
    }

    // Of a block that is ours.
    bool header_fits(u64 position, u64 word) {
        return Geometry::blocks_granules(memory.read_header(block(position)).size) ==
               geometry.length(word);
    }

    bool returns_pending() {
        u64 made =
            memory.load(words.made, std::memory_order_acquire);  // pairs with: announce_return
        u64 scanned =
            memory.load(words.scanned, std::memory_order_acquire);  // pairs with: take_returned
        made_seen_ = made;
        return made != scanned;
    }

    // The oldest RETRY. empty: there was none, or it is left aside.
    // A block is taken only after all before it were, so no RETRY stands behind the first block that still waits for its
    // first taker. R has no part in this: it may be moved past a block at the very moment in which that block comes back.
    Verdict take_returned(Taken& taken, u32 deliveries_max, Patience& patience) {
        u64 made = made_seen_, position, word;
        Verdict verdict;
        do {  // so that only blocks in use are scanned
            verdict = reclaim(position, word);
            if (verdict == Verdict::corrupt) return verdict;
        } while (verdict == Verdict::empty && !patience.over(*this));
        bool leaves_some = false;
        u64 tail = position;
        for (;;) {
            if (patience.over(*this))
                return worn_out(patience, "no progress in the scan for returned messages",
                                position);
            word = load_descriptor(position);
            Tag tag = geometry.tag(word, position);
            if (tag == Tag::newer) {  // T has moved past here
                verdict = overtaken_or_corrupt(words.tail, tail, position, word);
                if (verdict != Verdict::ok || !load_position(words.tail, tail))
                    return Verdict::corrupt;
                position = tail;
                continue;
            }
            State state = Geometry::state(word);
            if (tag == Tag::older || state == State::ready || state == State::reserved ||
                state == State::end)
                break;
            if (!sound(word, position)) return corrupt("descriptor", position, word);
            if (state == State::retry) {
                u32 before = Geometry::deliveries(word);
                u64 mine = Geometry::with(word, State::taken, me);
                if (deliveries_max != 0 && before >= deliveries_max) {
                    leaves_some = true;
                } else if (keep_count(position, word); memory.cas(
                               descriptor(position), word, mine,
                               std::memory_order_acq_rel)) {  // pairs with: give_back, repair
                    stamp_taken(position, geometry.length(mine), before);
                    taken = {position, mine, before};
                    return Verdict::ok;
                }
            }
            position += geometry.length(word);
        }
        if (!leaves_some)
            memory.store(words.scanned, made,
                         std::memory_order_release);  // pairs with: returns_pending
        return Verdict::empty;
    }

    static bool left_aside(u64 word, u32 deliveries_max) {
        return deliveries_max != 0 && Geometry::deliveries(word) >= deliveries_max;
    }

    // We would wait at `position`. True: something was done about it, look anew.
    // Turns closed into empty while somebody else holds messages that may come back.
    bool look_for_dead(u64 position, Verdict& verdict, u32 deliveries_max) {
        u64 head, oldest, word;
        if (blocker.owner != Blocker::nobody) {
            Blocker at = blocker;
            if (recover_if_dead(at.owner, at.position, at.word) ||
                fence_if_stalled(at.position, at.word))
                return true;
        } else {
            verdict = load_position(words.head, head) ? verdict : Verdict::corrupt;
            if (verdict == Verdict::corrupt) return false;
            if (head > position &&
                geometry.tag(load_descriptor(position), position) == Tag::older) {
                verdict = corrupt("gap before the head", position,
                                  0);  // I3: the head never passes what is not claimed
                return false;
            }
        }
        Verdict freed = reclaim(oldest, word);
        if (freed == Verdict::corrupt) verdict = freed;
        if (freed == Verdict::empty) return true;
        const u64 tail = oldest;
        u32 asked = Blocker::nobody;
        while (freed == Verdict::full && oldest < position) {
            word = load_descriptor(oldest);
            Tag tag = geometry.tag(word, oldest);
            if (tag == Tag::newer) {
                Verdict moved = overtaken_or_corrupt(words.tail, tail, oldest, word);
                if (moved != Verdict::ok) verdict = moved;
                return moved == Verdict::ok;
            }
            if (tag == Tag::older || !sound(word, oldest)) {
                verdict = corrupt("descriptor of a taken block", oldest, word);
                return false;
            }
            State state = Geometry::state(word);
            if (state == State::ready || state == State::reserved || state == State::end) {
                verdict =
                    corrupt("a block that nobody took, before the read position", oldest, word);
                return false;
            }
            u32 owner = Geometry::owner(word);
            if (state == State::retry) {
                if (!left_aside(word, deliveries_max)) {
                    // Its maker has not come to it yet, or died, or the numbers were overwritten.
                    announce_return();
                    return true;
                }
                if (verdict == Verdict::closed) verdict = Verdict::empty;
            }
            if (state == State::taken && owner != me) {
                if (blocker.owner == Blocker::nobody) blocker = {owner, oldest, word};
                if (verdict == Verdict::closed) verdict = Verdict::empty;
                if (owner != asked && recover_if_dead(owner, oldest, word)) return true;
                asked = owner;
            }
            oldest += geometry.length(word);
        }
        return false;
    }

    static constexpr u32 kReclaimMax = 1024;       // blocks that one put frees at most
    static constexpr u32 kStallDoublingsMax = 20;  // of a stall limit

 protected:
    u64 tail_seen_ = 0;  // T as we last read it: an old value only makes us look again

 private:
    u64 made_seen_ = 0;
    u64 watched_word_ = 0;
    u64 watched_position_ = 0;
    u64 watched_since_ms_ = 0;
    // Our puts that were fenced since one of the same size, or a larger one, got through: by the bits of their length.
    std::array<u32, 33> fenced_in_a_row_{};
    bool fenced_any_ = false;
};

}  // namespace holdfast
