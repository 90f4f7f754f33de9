// The queue: many producers, many consumers, blocks of any size. The death of a participant does not stop the others.
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
// Claiming the descriptor at the head *is* the record of intent: it names the claimant and the extent, all that a
// survivor needs. H and R are hints that any participant may correct; T alone frees space.
// The page docs/guide/queue.md numbers the invariants (I1 …) that the comments here cite.
//
// Every `Verdict` but ok leaves the queue as it was, except for repairs on the way.
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
        Base::load_block, Base::load_descriptor, Base::load_position, Base::me, Base::load_mark,
        Base::memory, Base::ring, Base::stall_limit_ms, Base::sound, Base::stamp, Base::stamp_taken,
        Base::words, Base::worn_out;
    using Base::Base;

    struct Claim {
        u64 position;
        u64 length;
        u64 word;
        u32 fences;   // in the mark until the commit
        u64 bytes;    // of all payloads
        u64 largest;  // bytes of the largest payload
    };

    Recovered recovered{};  // by this object, since it was created
    u64 fenced_others = 0;
    u64 put_end = 0;  // the position behind everything that this object has put

    // Puts the payloads into one extent: consumers see all of them at once, or, if this process dies, not one.
    // `probe`: when there is no room, ask the kernel whether the holder of the oldest space lives.
    Verdict put(std::span<const Payload> payloads, u64 time, bool full_checksum, bool probe) {
        Claim claim;
        if (const Verdict verdict = this->claim(payloads, probe, claim); verdict != Verdict::ok)
            return verdict;
        write(claim, payloads, time, full_checksum);
        return publish(claim, payloads);
    }

    // The steps of a put: claim, write, publish. `write` copies: it changes only the blocks of its claim and no member of
    // this object, so other threads may use the object meanwhile.

    Verdict claim(std::span<const Payload> payloads, bool probe, Claim& claim) {
        u64 length = 0, bytes = 0, largest = 0;
        for (const Payload& payload : payloads) {
            length += Geometry::blocks_granules(payload.size);
            bytes += payload.size;
            largest = std::max(largest, payload.size);
        }
        memory.at(QueuePoint::put_begin);
        const Verdict verdict = reserve(length, payloads.size() == 1, claim, probe);
        claim.bytes = bytes;
        claim.largest = largest;
        return verdict;
    }

    // Writes header and payload of each block, and the descriptors of all but the first. No consumer can reach them yet.
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

    // fenced: consumers have passed over the blocks; nothing was put.
    Verdict publish(const Claim& claim, std::span<const Payload> payloads) {
        const u64 first = Geometry::blocks_granules(payloads[0].size);
        if (claim.fences != 0) stamp(claim.position, payloads.size() == 1 ? claim.length : 0, 0);
        const Verdict verdict = commit(claim, first);
        if (verdict == Verdict::ok) put_end = std::max(put_end, claim.position + claim.length);
        note_fence(verdict, claim.length);
        ring(verdict == Verdict::ok ? words.data_bell : words.space_bell);
        return verdict;
    }

    // Takes up to `wanted` messages. ok: `count` messages, at least one; we own each until it is settled or given back.
    // `probe`: before we wait for participants, ask the kernel whether they live.
    // `deliveries_max`: leave aside messages that came back that often (0: leave nothing aside).
    Verdict take(Taken* taken, u32 wanted, u32& count, bool probe, u32 deliveries_max = 0) {
        count = 0;
        Patience patience(geometry.granules());
        while (!patience.over(*this)) {
            blocker = {};
            if (returns_pending()) {
                const Look look = take_returned(taken[0], deliveries_max, patience);
                if (look == Look::corrupt) return Verdict::corrupt;
                if (look == Look::found) {
                    count = 1;
                    return Verdict::ok;
                }
                if (look == Look::moved) continue;  // patience is over
            }
            u64 read;
            if (!load_position(words.read, read)) return Verdict::corrupt;
            u64 position = read;
            Look look = take_run(taken, wanted, count, position, deliveries_max);
            if (position != read) {
                memory.at(QueuePoint::take_claimed);
                advance(words.read, read, position);
                memory.at(QueuePoint::take_moved);
            }
            if (count > 0) return Verdict::ok;
            if (look == Look::corrupt) return Verdict::corrupt;
            if (look != Look::moved && position == read) {
                const Verdict verdict = look == Look::closed ? Verdict::closed : Verdict::empty;
                if (!probe) return verdict;
                look = look_for_dead(position, deliveries_max);
                if (look == Look::corrupt) return Verdict::corrupt;
                if (look == Look::blocked) return Verdict::empty;
                if (look == Look::nothing) return verdict;
            }
            memory.again();
        }
        return worn_out(patience, "no progress in take");
    }

    // Frees the space of a message. False: its word was overwritten, so the block is not ours any more.
    bool settle(const Taken& taken) {
        memory.at(QueuePoint::settle_begin);
        u64 expected = taken.word;
        bool ours = memory.cas(
            descriptor(taken.position), expected, Geometry::with(taken.word, State::done, me),
            std::memory_order_release);  // pairs with: load_descriptor in reclaim
        memory.at(QueuePoint::settled);
        return ours;
    }

    // Call this once after one or more calls of settle.
    void announce_space() { ring(words.space_bell); }

    // Lets the next consumer have the message. `counts`: this was a delivery. Without it, no user has seen the message, so
    // it is given back even where only one delivery is allowed.
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

    // Ends the stream: the descriptor at the head becomes END, and no producer can claim beyond it. One granule is always
    // kept free for it, so closing never waits.
    Verdict close() {
        Patience patience(geometry.granules());
        while (!patience.over(*this)) {
            u64 head;
            if (!load_position(words.head, head)) return Verdict::corrupt;
            LoadedBlock block = load_block({words.head, head}, head);
            if (block.look == Look::corrupt) return Verdict::corrupt;
            if (block.look == Look::found) {
                if (block.state == State::end) return Verdict::ok;
                advance(words.head, head, block.end());
            } else if (
                block.look == Look::nothing &&
                memory.cas(
                    descriptor(head), block.word, geometry.word(head, 1, State::end, me),
                    std::
                        memory_order_acq_rel)) {  // pairs with: load_descriptor in reserve, take_run
                memory.at(QueuePoint::close_marked);
                ring(words.data_bell);
                ring(words.space_bell);
                return Verdict::ok;
            }
            memory.again();
        }
        return worn_out(patience, "no progress in close");
    }

    // Recovers `owner` if the kernel says that it is dead. `position`, `word`: its block in our way, if there is one.
    bool recover_if_dead(u32 owner, u64 position = 0, u64 word = 0) {
        return holdfast::recover_if_dead(memory, me, owner, [&] {
            const Recovered sum = recover_holding(*this, owner, position, word);
            recovered += sum;
            return sum.complete;
        });
    }

    // Fences a living writer's unfinished block: consumers pass over it. Its space stays the writer's until the writer
    // dies or notices. Only with a stall limit, and only for a block that we saw unchanged for that long.
    bool fence_if_stalled(u64 position, u64 word) {
        if (stall_limit_ms == kNoStallLimit) return false;
        u64 now = memory.now_ms();
        if (watched_word_ != word || watched_position_ != position) {
            watched_word_ = word;
            watched_position_ = position;
            watched_since_ms_ = now;
        }
        // The mark of an unfinished block has the number of earlier fences of its put. Each doubles the limit, so that a
        // copy that takes longer than the limit succeeds.
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
            LoadedBlock block = load_block({words.head, head}, head);
            if (block.look == Look::corrupt) return Verdict::corrupt;
            if (block.look == Look::found) {
                if (block.state == State::end) return Verdict::closed;
                advance(words.head, head, block.end());  // its claimant is slow, or dead
                memory.again();
                continue;
            }
            if (block.look == Look::moved) {  // our `head` is a lap old
                memory.again();
                continue;
            }
            // A block does not cross the end of the ring: what is left before it becomes a block to skip.
            u64 rest = geometry.granules() - geometry.index(head);
            bool pads = length > rest;
            u64 extent = pads ? rest : length;
            if (head + extent + 1 > tail_seen_ + geometry.granules()) {
                const Look room = make_room(head + extent + 1, probe);
                if (room == Look::moved) {
                    memory.again();
                    continue;
                }
                if (room != Look::found)
                    return room == Look::blocked ? Verdict::full : Verdict::corrupt;
            }
            u64 wanted = geometry.word(head, extent, pads ? State::skip : State::reserved, me);
            if (memory.cas(descriptor(head), block.word, wanted,
                           std::memory_order_acq_rel)) {  // pairs with: load_descriptor
                memory.at(pads ? QueuePoint::pad_claimed : QueuePoint::put_claimed);
                const u32 fences = fences_of(length);
                if (!pads) stamp(head, single ? extent : 0, fences);
                advance(words.head, head, head + extent);
                if (!pads) {
                    memory.at(QueuePoint::put_moved);
                    claim = {head, extent, wanted, fences, 0, 0};
                    return Verdict::ok;
                }
            }
            memory.again();
        }
        return worn_out(patience, "no progress in put");
    }

    // Makes everything before `end` minus one lap free.
    Look make_room(u64 end, bool probe) {
        u64 tail;
        if (!load_position(words.tail, tail)) return Look::corrupt;
        tail_seen_ = tail;
        if (end <= tail + geometry.granules()) return Look::found;
        LoadedBlock oldest;
        const Look look = reclaim(oldest);
        if (look == Look::nothing)
            return end <= oldest.position + geometry.granules()
                       ? Look::found
                       : moved_or_gap(oldest.position, oldest);
        if (look != Look::blocked) return look;
        if (probe && oldest.awaits_first_taker()) {
            u64 read;
            if (!load_position(words.read, read)) return Look::corrupt;
            if (read > oldest.position && load_descriptor(oldest.position) == oldest.word)
                return passed_by_read(oldest);
        }
        blocker = {oldest.held() ? oldest.owner : Blocker::nobody, oldest.position, oldest.word};
        if (probe && oldest.held() && recover_if_dead(oldest.owner, oldest.position, oldest.word))
            return Look::moved;
        return Look::blocked;
    }

    // Moves T over settled and skipped blocks with one compare-and-swap: while T stays, these blocks do not change.
    // `oldest` is the descriptor at T. blocked: its block is in use. nothing: there is not a block.
    Look reclaim(LoadedBlock& oldest) {
        u64 tail, read;
        if (!load_position(words.tail, tail) || !load_position(words.read, read))
            return Look::corrupt;
        u64 position = tail;
        for (u32 blocks = 0; blocks < kReclaimMax; ++blocks) {
            if (position >= read && position != tail) break;
            const LoadedBlock block = load_block({words.tail, tail}, position);
            if (position == tail) oldest = block;
            if (block.look == Look::nothing)
                return position == read ? Look::nothing : moved_or_gap(tail, block);
            if (block.look != Look::found) return block.look;
            if (block.state != State::done && block.state != State::skip) break;
            if (position >= read) {  // I2: R goes first
                advance(words.read, read, block.end());
                return Look::moved;
            }
            position = block.end();
        }
        if (position == tail) return Look::blocked;
        advance(words.tail, tail, position);
        memory.at(QueuePoint::reclaimed);
        return Look::moved;
    }

    // No block where one must be: either T has moved since it was `tail`, or the chain is broken (I3).
    Look moved_or_gap(u64 tail, const LoadedBlock& at) {
        u64 now;
        if (!load_position(words.tail, now)) return Look::corrupt;
        return now != tail ? Look::moved
                           : corrupt("gap in the chain of blocks", at.position, at.word);
    }

    Look passed_by_read(const LoadedBlock& at) {
        return corrupt("a block that was never taken, before the read position", at.position,
                       at.word);
    }

    // Counts fences by size, because the time of a copy depends on it. A small message that gets through says nothing
    // about large ones. A large message that was fenced does not raise the limit of small ones.
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

    // The put takes effect here, or not at all.
    Verdict commit(const Claim& claim, u64 first_length) {
        u64 expected = claim.word;
        if (memory.cas(descriptor(claim.position), expected,
                       geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_release)) {  // pairs with: load_descriptor in take_run
            memory.at(QueuePoint::put_committed);
            return Verdict::ok;
        }
        if (expected != Geometry::with(claim.word, State::fenced, me)) {
            corrupt("descriptor of a block being written", claim.position, expected);
            return Verdict::corrupt;
        }
        // The writer is done with the space: it can be used again.
        memory.cas(descriptor(claim.position), expected,
                   Geometry::with(claim.word, State::skip, me),
                   std::memory_order_release);  // pairs with: load_descriptor in reclaim
        return Verdict::fenced;
    }

    // Takes blocks from `position` on; moves `position` past them, and past blocks that are over.
    Look take_run(Taken* taken, u32 wanted, u32& count, u64& position, u32 deliveries_max) {
        const Start start{words.read, position};
        const u64 limit = position + geometry.granules();
        while (count < wanted && position < limit) {
            LoadedBlock block = Base::template load_block<LengthCheck::header>(start, position);
            if (block.look != Look::found) return block.look;
            switch (block.state) {
                case State::ready:
                case State::retry: {
                    const bool returned = block.state == State::retry;
                    const u32 before = returned ? Geometry::deliveries(block.word) : 0;
                    if (returned && left_aside(block, deliveries_max)) {
                        announce_return();  // R passes it by: I6
                        break;
                    }
                    if (returned) keep_count(position, block.word);
                    const u64 mine = Geometry::with(block.word, State::taken, me);
                    // pairs with: commit, give_back, repair
                    if (!memory.cas(descriptor(position), block.word, mine,
                                    std::memory_order_acq_rel))
                        return Look::moved;
                    if (!header_fits(position, mine) && !sound(mine, position))
                        return corrupt("descriptor", position, mine);
                    if (count == 0) stamp_taken(position, block.length, before);
                    taken[count++] = {position, mine, before};
                    break;
                }
                case State::reserved:
                    blocker = {block.owner, position, block.word};
                    return Look::blocked;
                case State::end:
                    return Look::closed;
                default:
                    break;  // taken, done, skipped, fenced: not for us
            }
            position = block.end();
        }
        return Look::moved;
    }

    // Messages that came back that often are not taken now; 0: all are.
    static bool left_aside(const LoadedBlock& returned, u32 deliveries_max) {
        return deliveries_max != 0 && Geometry::deliveries(returned.word) >= deliveries_max;
    }

    // The header of our block has the same length as its descriptor.
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

    // Takes the oldest RETRY. nothing: all were taken, or are left aside. moved: patience is over.
    // A block is taken only after all before it were, so no RETRY stands behind the first block that awaits its first
    // taker. R does not matter here: it may move past a block at the moment at which that block comes back.
    Look take_returned(Taken& taken, u32 deliveries_max, Patience& patience) {
        const u64 made = made_seen_;
        LoadedBlock block;
        Look look;
        do {  // so that only blocks in use are scanned
            look = reclaim(block);
            if (look == Look::corrupt) return look;
        } while (look == Look::moved && !patience.over(*this));
        bool leaves_some = false;
        Start start{words.tail, block.position};
        u64 position = start.position;
        for (;;) {
            if (patience.over(*this)) return Look::moved;
            block = load_block(start, position);
            if (block.look == Look::corrupt) return block.look;
            if (block.look == Look::moved) {  // T has moved past here
                if (!load_position(words.tail, start.position)) return Look::corrupt;
                position = start.position;
                continue;
            }
            if (block.look == Look::nothing || block.awaits_first_taker()) break;
            if (block.state == State::retry) {
                const u32 before = Geometry::deliveries(block.word);
                const u64 mine = Geometry::with(block.word, State::taken, me);
                if (left_aside(block, deliveries_max)) {
                    leaves_some = true;
                } else if (keep_count(position, block.word); memory.cas(
                               descriptor(position), block.word, mine,
                               std::memory_order_acq_rel)) {  // pairs with: give_back, repair
                    stamp_taken(position, block.length, before);
                    taken = {position, mine, before};
                    return Look::found;
                }
            }
            position = block.end();
        }
        if (!leaves_some)
            memory.store(words.scanned, made,
                         std::memory_order_release);  // pairs with: returns_pending
        return Look::nothing;
    }

    // We would wait at `position`. moved: something was done about it. blocked: another participant holds a message that
    // may come back. nothing: no message comes back.
    Look look_for_dead(u64 position, u32 deliveries_max) {
        if (blocker.owner != Blocker::nobody) {
            if (clear_the_way(blocker)) return Look::moved;
        } else if (!head_is_reached(position)) {
            return Look::corrupt;
        }
        LoadedBlock oldest;
        const Look look = reclaim(oldest);
        return look == Look::blocked ? ask_holders(oldest.position, position, deliveries_max)
                                     : look;
    }

    // True: the block in the way is out of the way. A copy of `at`, which recovery may change.
    bool clear_the_way(Blocker at) {
        return recover_if_dead(at.owner, at.position, at.word) ||
               fence_if_stalled(at.position, at.word);
    }

    // I3: the head never passes a position that is not claimed.
    bool head_is_reached(u64 position) {
        u64 head;
        if (!load_position(words.head, head)) return false;
        if (head <= position || geometry.tag(load_descriptor(position), position) != Tag::older)
            return true;
        corrupt("gap before the head", position, 0);
        return false;
    }

    // Asks the kernel about the holders of all blocks that were taken, from `tail` to `end`. As look_for_dead.
    Look ask_holders(u64 tail, u64 end, u32 deliveries_max) {
        bool comes_back = false;
        u32 asked = Blocker::nobody;
        for (u64 position = tail; position < end;) {
            const LoadedBlock block = load_block({words.tail, tail}, position);
            if (block.look == Look::nothing)
                return corrupt("descriptor of a taken block", position, block.word);
            if (block.look != Look::found) return block.look;
            if (block.awaits_first_taker()) return passed_by_read(block);
            if (block.state == State::retry) {
                if (!left_aside(block, deliveries_max)) {
                    announce_return();  // its owner has not yet, or died, or the numbers were overwritten
                    return Look::moved;
                }
                comes_back = true;
            }
            if (block.state == State::taken && block.owner != me) {
                if (blocker.owner == Blocker::nobody) blocker = {block.owner, position, block.word};
                comes_back = true;
                if (block.owner != asked && recover_if_dead(block.owner, position, block.word))
                    return Look::moved;
                asked = block.owner;
            }
            position = block.end();
        }
        return comes_back ? Look::blocked : Look::nothing;
    }

    static constexpr u32 kReclaimMax = 1024;       // blocks that one put frees at most
    static constexpr u32 kStallDoublingsMax = 20;  // of a stall limit

 protected:
    u64 tail_seen_ = 0;  // T as last read: an old value only costs another look

 private:
    u64 made_seen_ = 0;
    u64 watched_word_ = 0;
    u64 watched_position_ = 0;
    u64 watched_since_ms_ = 0;
    // Puts of this object that were fenced since one of the same size or larger got through, by the bits of their length.
    std::array<u32, 33> fenced_in_a_row_{};
    bool fenced_any_ = false;
};

}  // namespace holdfast
