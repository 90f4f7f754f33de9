// The bytes of a queue segment: where everything stands, and how its words are packed.
//
//   0        4096        5120                      page        page        page             end
//   | header | controls  | participants × 128 B ... | D[N] u64 | A[N] 16 B | ring N × 64 B  |
//
// Controls, each on its own pair of cache lines:
//   +0   head H      sealed position   where the next block is claimed (a hint: anyone may advance it)
//   +128 read R      sealed position   the oldest block that nobody has taken yet (a hint, too)
//   +256 tail T      sealed position   the oldest block whose space is not free
//   +384 returns made      u64         raised after a block became RETRY
//   +512 returns scanned   u64         `made` as read before a scan that found no RETRY
//   +640 data bell   u32               futex word of those who wait for a message
//   +768 space bell  u32               futex word of those who wait for room
//
// Positions count 64-byte granules and only ever grow; a block at position p starts at granule p mod N.
// They begin at N, so that lap 0, the lap of fresh zeroed memory, is older than any position.
//
// Sealed position:  63      52 51                     0
//                   | check    | position             |   an overwritten word is noticed, not followed
//
// Descriptor D[i]:  63            12+b 12+b     13 12  10 9     0
//                   | lap            | length-1   | state | owner |    b = log2(N) - 1 bits of length
//
//   In RETRY, which has no owner, the owner's bits count the deliveries that have ended without a settlement.
//
// Side A[i].mark:   63            12+b 12+b     13 12     11 10 9          0
//                   | lap            | length-1   | known | 0   | deliveries |   lap and length as in the descriptor
//   A second opinion on the length (unless `known` is 0), and the count while the block is TAKEN.
//
// Side A[i].claimed_ms: time of the last claim, for people
//
// The mark has the whole lap. A part of it would come round again, and a stale mark would count for a new block. Such marks
// exist: padding, END, and a block whose writer died before its mark keep the mark of the last block that started there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "holdfast/shm/memory.hpp"
#include "holdfast/shm/participants.hpp"

namespace holdfast {

inline constexpr u32 kQueueVersion = 2;
inline constexpr u64 kGranule = 64;
inline constexpr u64 kPositionBits = 52;
inline constexpr u64 kPositionMax = (u64{1} << kPositionBits) - 1;
inline constexpr u64 kOwnerBits = 10;
inline constexpr u32 kParticipantsMax = (1u << kOwnerBits) - 1;

// The state of the block at a descriptor's position. END has the number of fresh memory. No position has the tag of fresh
// memory, so an END was always put there by close().
enum class State : u32 {
    end = 0,
    reserved = 1,
    ready = 2,
    taken = 3,
    retry = 4,
    done = 5,
    skip = 6,
    fenced = 7
};

inline constexpr const char* kStateNames[] = {"END",   "RESERVED", "READY", "TAKEN",
                                              "RETRY", "DONE",     "SKIP",  "FENCED"};

inline constexpr const char* state_name(State state) {
    return kStateNames[static_cast<u32>(state)];
}

// Deliveries are counted up to here, in the owner's bits of a descriptor and in a mark.
inline constexpr u32 kDeliveriesMax = (1u << kOwnerBits) - 1;

enum class Delivery : u32 { at_least_once = 0, at_most_once = 1 };

inline constexpr u32 kNoStallLimit = 0xffffffffu;

// The creator's choices; they are in the segment header, and covered by its checksum.
struct QueueParams {
    u64 granules;
    u32 participants;
    Delivery delivery;
    u32 max_deliveries;  // 0: no limit
    u32 stall_limit_ms;  // kNoStallLimit: a living writer is never fenced
    u32 full_checksum;   // 0: the header alone is checked; 1: the payload, too
    u32 reserved;
    char dead_letter[128];
};
static_assert(sizeof(QueueParams) == 160 && sizeof(QueueParams) <= 512);

// Which position a word speaks of, relative to the one that we ask about.
enum class Tag { older, current, newer };

enum class Control : u64 { head, read, tail, made, scanned, data_bell, space_bell, count_ };

// The words beside a descriptor.
struct SideEntry {
    u64 mark;
    u64 claimed_ms;
};
static_assert(sizeof(SideEntry) == 16);

// A mark, taken apart.
struct Mark {
    bool current;  // written for this very position
    bool known;    // `length` is the block's
    u64 length;
    u32 deliveries;  // that had ended without a settlement when the block was taken
};

class Geometry {
 public:
    Geometry() = default;
    constexpr Geometry(u64 granules, u32 participants)
        : granules_(granules),
          shift_(static_cast<u32>(std::countr_zero(granules))),
          participants_(participants) {}

    static bool valid(u64 granules, u32 participants) {
        return std::has_single_bit(granules) && granules >= 4 && granules <= (u64{1} << 32) &&
               participants >= 1 && participants <= kParticipantsMax;
    }

    constexpr u64 granules() const { return granules_; }
    constexpr u32 participants() const { return participants_; }
    constexpr u64 length_max() const { return granules_ / 2; }
    // Half of the ring, and no more than the 32 bits of a block's size tell.
    constexpr u64 size_max() const {
        return std::min(length_max() * kGranule, u64{1} << 32) - sizeof(BlockHeader);
    }
    constexpr u64 index(u64 position) const { return position & (granules_ - 1); }
    constexpr u64 lap(u64 position) const { return position >> shift_; }
    static constexpr u64 blocks_granules(u64 payload) {
        return (payload + sizeof(BlockHeader) + kGranule - 1) / kGranule;
    }

    static constexpr u64 control_offset(Control which) {
        return 4096 + static_cast<u64>(which) * 128;
    }
    static constexpr u64 participants_offset() { return 5120; }
    constexpr u64 descriptors_offset() const {
        return page(participants_offset() + participants_ * sizeof(ParticipantEntry));
    }
    constexpr u64 sides_offset() const { return page(descriptors_offset() + granules_ * 8); }
    constexpr u64 ring_offset() const {
        return page(sides_offset() + granules_ * sizeof(SideEntry));
    }
    constexpr u64 size() const { return ring_offset() + page(granules_ * kGranule); }

    // Descriptors.
    constexpr u64 word(u64 position, u64 length, State state, u32 owner) const {
        return lap(position) << lap_shift() | (length - 1) << 13 |
               u64{static_cast<u32>(state)} << 10 | owner;
    }
    static constexpr State state(u64 word) { return static_cast<State>(word >> 10 & 7); }
    static constexpr u32 owner(u64 word) {
        return static_cast<u32>(word & ((1u << kOwnerBits) - 1));
    }
    constexpr u64 length(u64 word) const { return (word >> 13 & (length_max() - 1)) + 1; }
    constexpr Tag tag(u64 word, u64 position) const {
        u64 found = word >> lap_shift(), asked = lap(position);
        return found == asked ? Tag::current : found < asked ? Tag::older : Tag::newer;
    }
    static constexpr u64 with(u64 word, State state, u32 owner) {
        return (word & ~u64{0x1fff}) | u64{static_cast<u32>(state)} << 10 | owner;
    }
    // A block that came back.
    static constexpr u64 returned(u64 word, u32 deliveries) {
        return with(word, State::retry, std::min(deliveries, kDeliveriesMax));
    }
    static constexpr u32 deliveries(u64 returned) { return owner(returned); }
    // A block never crosses the end of the ring, and its owner has a slot.
    bool plausible(u64 word, u64 position) const {
        return index(position) + length(word) <= granules_ &&
               (owner(word) < participants_ || state(word) == State::retry);
    }

    // Marks. `length` 0: not known.
    constexpr u64 mark(u64 position, u64 length, u32 deliveries) const {
        return lap(position) << lap_shift() |
               (length == 0 ? 0 : (length - 1) << 13 | u64{1} << 12) |
               std::min(deliveries, kDeliveriesMax);
    }
    constexpr Mark mark_of(u64 mark, u64 position) const {
        if (tag(mark, position) != Tag::current) return {false, false, 0, 0};
        return {true, (mark >> 12 & 1) != 0, length(mark), owner(mark)};
    }

 private:
    static constexpr u64 page(u64 bytes) { return (bytes + 4095) & ~u64{4095}; }
    constexpr u32 lap_shift() const { return 13 + shift_ - 1; }

    u64 granules_ = 0;
    u32 shift_ = 0;
    u32 participants_ = 0;
};

// Sealed positions. The golden-ratio multiplier makes the seals of neighbours differ, the constant keeps 0 from being one.
inline constexpr u64 seal_bits(u64 position) {
    return ((position * 0x9E3779B97F4A7C15u) >> kPositionBits ^ 0x5A5) << kPositionBits;
}
inline constexpr u64 sealed(u64 position) {
    return position | seal_bits(position);
}
inline constexpr u64 unsealed(u64 word) {
    return word & kPositionMax;
}
inline constexpr bool seal_holds(u64 word) {
    return word == sealed(unsealed(word));
}
static_assert(!seal_holds(0) && !seal_holds(~u64{0}) && !seal_holds(sealed(4096) + 1) &&
              !seal_holds(sealed(4096) - 1));

// Pointers into one mapping of the segment.
struct QueueWords {
    u64* head;
    u64* read;
    u64* tail;
    u64* made;
    u64* scanned;
    u32* data_bell;
    u32* space_bell;
    u64* descriptors;
    SideEntry* sides;
    std::byte* ring;

    QueueWords() = default;
    QueueWords(std::byte* base, const Geometry& geometry)
        : head(control<u64>(base, Control::head)),
          read(control<u64>(base, Control::read)),
          tail(control<u64>(base, Control::tail)),
          made(control<u64>(base, Control::made)),
          scanned(control<u64>(base, Control::scanned)),
          data_bell(control<u32>(base, Control::data_bell)),
          space_bell(control<u32>(base, Control::space_bell)),
          descriptors(reinterpret_cast<u64*>(base + geometry.descriptors_offset())),
          sides(reinterpret_cast<SideEntry*>(base + geometry.sides_offset())),
          ring(base + geometry.ring_offset()) {}

 private:
    template <class Word>
    static Word* control(std::byte* base, Control which) {
        return reinterpret_cast<Word*>(base + Geometry::control_offset(which));
    }
};

// A fresh queue. The rest of the file is zero, which is what every other word starts as.
// `first`: where its positions begin; tests make queues that are old from the start.
inline void initialise_queue(std::byte* base, const Geometry& geometry, u64 first = 0) {
    QueueWords words(base, geometry);
    *words.head = *words.read = *words.tail = sealed(std::max(first, geometry.granules()));
}

// Two builds understand each other's segments if and only if their fingerprints are equal. It is computed with the
// functions that place and pack everything, so it does not depend on a list that an author keeps.
class Fingerprint {
 public:
    constexpr void add(u64 part) {
        hash_ = (hash_ ^ part) * 0x9E3779B97F4A7C15u;
        hash_ ^= hash_ >> 29;  // so that what differs in high bits alone does not cancel
    }

    constexpr void add(const Geometry& geometry) {
        for (u64 part : {geometry.descriptors_offset(), geometry.sides_offset(),
                         geometry.ring_offset(), geometry.size(), geometry.size_max()})
            add(part);
        const u64 granules = geometry.granules();
        for (u64 position : {granules, 3 * granules - 1, kPositionMax - granules}) {
            add(geometry.index(position));
            add(geometry.lap(position));
            add(sealed(position));
            for (u64 length : {u64{1}, geometry.length_max()}) add(geometry, position, length);
        }
    }

    constexpr u64 value() const { return hash_; }

 private:
    constexpr void add(const Geometry& geometry, u64 position, u64 length) {
        for (State state : {State::end, State::reserved, State::ready, State::taken, State::retry,
                            State::done, State::skip, State::fenced}) {
            for (u32 owner : {0u, 1u, kParticipantsMax}) {
                const u64 word = geometry.word(position, length, state, owner);
                add(word);
                add(Geometry::returned(word, owner + 1));
            }
        }
        for (u32 deliveries : {0u, 1u, kDeliveriesMax + 1}) {
            add(geometry.mark(position, 0, deliveries));
            add(geometry.mark(position, length, deliveries));
        }
    }

    u64 hash_ = 1469598103934665603u;
};

inline constexpr u64 compute_queue_fingerprint() {
    Fingerprint print;
    print.add(kQueueVersion);
    for (u64 which = 0; which < static_cast<u64>(Control::count_); ++which)
        print.add(Geometry::control_offset(static_cast<Control>(which)));
    for (Control which : {Control::head, Control::read, Control::tail, Control::made,
                          Control::scanned, Control::data_bell, Control::space_bell})
        print.add(static_cast<u64>(which));
    print.add(Geometry::participants_offset());
    print.add(Geometry(4, 1));
    print.add(Geometry(1024, 64));
    print.add(Geometry(u64{1} << 32, kParticipantsMax));
    for (u64 payload : {0, 31, 32, 33, 96, 97}) print.add(Geometry::blocks_granules(payload));
    for (u64 part : {offsetof(SideEntry, mark),
                     offsetof(SideEntry, claimed_ms),
                     sizeof(SideEntry),
                     offsetof(ParticipantEntry, who),
                     offsetof(ParticipantEntry, since),
                     offsetof(ParticipantEntry, joined_ms),
                     offsetof(ParticipantEntry, counts),
                     sizeof(ParticipantEntry),
                     offsetof(QueueParams, granules),
                     offsetof(QueueParams, participants),
                     offsetof(QueueParams, delivery),
                     offsetof(QueueParams, max_deliveries),
                     offsetof(QueueParams, stall_limit_ms),
                     offsetof(QueueParams, full_checksum),
                     offsetof(QueueParams, dead_letter),
                     sizeof(QueueParams),
                     offsetof(BlockHeader, magic),
                     offsetof(BlockHeader, kind),
                     offsetof(BlockHeader, flags),
                     offsetof(BlockHeader, size),
                     offsetof(BlockHeader, tag),
                     offsetof(BlockHeader, time),
                     offsetof(BlockHeader, crc),
                     sizeof(BlockHeader)})
        print.add(part);
    for (u64 part : {u64{kBlockMagic}, u64{kMessageBlock}, u64{kFullChecksum}, kActiveBit,
                     static_cast<u64>(kLockBase), u64{kNoStallLimit}})
        print.add(part);
    return print.value();
}

inline constexpr u64 queue_fingerprint() {
    constexpr u64 value = compute_queue_fingerprint();
    return value;
}

}  // namespace holdfast
