// The bytes of a lane: where everything stands. A channel with one producer and one priority is one lane (lanes.hpp).
//
//   0        4096       4608                      page                       page                            end
//   | header | controls | participants × 128 B ... | states [n] · owners [pool] | entries [n] · lengths · buffers |
//   |<------------------------- both sides write ------------------------------>|<-- the consumer only reads ---->|
//
// Controls, each on its own cache line:
//   +0    producer    u32   slot of the participant that has this role, plus 1; 0: free
//   +64   consumer    u32   the same
//   +128  head        u64   the consumer's next position, for its successor
//   +192  data bell   u32   futex word of a consumer that waits for a datum
//   +256  space bell  u32   futex word of a producer that waits for a free slot
//
// n = slots + 1. The pool has slots + loans + holds buffers. That many can be in the ring, in the producer's hands and in
// the consumer's at once, so a push always finds one. Nothing here depends on the width of a pointer.
#pragma once

#include <cstddef>

#include "holdfast/base/types.hpp"
#include "holdfast/channel/state.hpp"
#include "holdfast/shm/participants.hpp"

namespace holdfast {

inline constexpr u32 kChannelVersion = 1;
inline constexpr u32 kChannelParticipants = 64;  // a role, and what a process keeps after it
inline constexpr u32 kChannelSlotsMax = 1u << 16;
inline constexpr u32 kChannelPoolMax = 1u << 17;
inline constexpr u64 kChannelSlotSizeMax = u64{1} << 31;
inline constexpr u64 kChannelPositionMax = u64{1}
                                           << 62;  // 146,000 years at a million pushes a second

// Distance of two states. Packed, 64 of them share a cache line; with 64, each has its own. `holdfast bench channel`
// compares both, and docs/reference/benchmarks.md says why they are packed.
inline constexpr u32 kPackedStates = 1;
inline constexpr u32 kSpreadStates = 64;
inline constexpr u32 kStateStride = kPackedStates;

// The words beside a state. Written by the producer only.
struct alignas(8) ChannelEntry {
    u64 position;
    u32 index;
    u32 spare;
};
static_assert(sizeof(ChannelEntry) == 16);

class ChannelGeometry {
 public:
    ChannelGeometry() = default;
    constexpr ChannelGeometry(u32 slots, u32 loans, u32 holds, u64 slot_size)
        : slots_(slots), pool_(slots + loans + holds), slot_size_(slot_size) {}

    // The ring that carries the buffers of a lane back. It has a slot for each, and no buffers of its own.
    constexpr ChannelGeometry back() const {
        ChannelGeometry back;
        back.slots_ = back.pool_ = pool_;
        return back;
    }

    static bool valid(u64 slots, u64 loans, u64 holds, u64 slot_size) {
        return slots >= 1 && slots <= kChannelSlotsMax && loans >= 1 && holds >= 1 &&
               loans <= kChannelSlotsMax && holds <= kChannelSlotsMax &&
               slots + loans + holds <= kChannelPoolMax && slot_size >= 1 &&
               slot_size <= kChannelSlotSizeMax;
    }

    constexpr u32 slots() const { return slots_; }
    constexpr u32 positions() const { return slots_ + 1; }
    constexpr u32 pool() const { return pool_; }
    constexpr u64 slot_size() const { return slot_size_; }
    constexpr u64 buffer_stride() const { return round(slot_size_, 64); }

    static constexpr u64 producer_offset() { return 4096; }
    static constexpr u64 consumer_offset() { return 4096 + 64; }
    static constexpr u64 head_offset() { return 4096 + 128; }
    static constexpr u64 data_bell_offset() { return 4096 + 192; }
    static constexpr u64 space_bell_offset() { return 4096 + 256; }
    static constexpr u64 participants_offset() { return 4608; }
    static constexpr u64 states_offset() {
        return round(participants_offset() + kChannelParticipants * sizeof(ParticipantEntry), 4096);
    }
    constexpr u64 owners_offset(u32 stride) const {
        return round(states_offset() + u64{positions()} * stride, 64);
    }
    // From here on the consumer maps the segment read-only.
    constexpr u64 entries_offset(u32 stride) const {
        return round(owners_offset(stride) + pool_, 4096);
    }
    constexpr u64 lengths_offset(u32 stride) const {
        return round(entries_offset(stride) + positions() * sizeof(ChannelEntry), 64);
    }
    constexpr u64 buffers_offset(u32 stride) const {
        return round(lengths_offset(stride) + pool_ * sizeof(u32), 4096);
    }
    constexpr u64 size(u32 stride) const {
        return round(buffers_offset(stride) + pool_ * buffer_stride(), 4096);
    }

 private:
    static constexpr u64 round(u64 bytes, u64 to) { return (bytes + to - 1) / to * to; }

    u32 slots_ = 0;
    u32 pool_ = 0;
    u64 slot_size_ = 0;
};

// Pointers into one mapping of the segment.
template <u32 kStride = kStateStride>
class ChannelWords {
 public:
    ChannelWords() = default;
    ChannelWords(std::byte* base, const ChannelGeometry& geometry)
        : base_(base),
          states_(at<u8>(ChannelGeometry::states_offset())),
          owners_(at<u8>(geometry.owners_offset(kStride))),
          entries_(at<ChannelEntry>(geometry.entries_offset(kStride))),
          lengths_(at<u32>(geometry.lengths_offset(kStride))),
          buffers_(base + geometry.buffers_offset(kStride)),
          buffer_stride_(geometry.buffer_stride()) {}

    // A ring whose buffers are those of `pool`.
    ChannelWords(std::byte* base, const ChannelGeometry& geometry, const ChannelWords& pool)
        : ChannelWords(base, geometry) {
        owners_ = pool.owners_;
        lengths_ = pool.lengths_;
        buffers_ = pool.buffers_;
        buffer_stride_ = pool.buffer_stride_;
    }

    u32* producer() const { return at<u32>(ChannelGeometry::producer_offset()); }
    u32* consumer() const { return at<u32>(ChannelGeometry::consumer_offset()); }
    u64* head() const { return at<u64>(ChannelGeometry::head_offset()); }
    u32* data_bell() const { return at<u32>(ChannelGeometry::data_bell_offset()); }
    u32* space_bell() const { return at<u32>(ChannelGeometry::space_bell_offset()); }
    u8* state(u32 slot) const { return states_ + u64{slot} * kStride; }
    u8* owner(u32 index) const { return owners_ + index; }
    u64* position(u32 slot) const { return &entries_[slot].position; }
    u32* index(u32 slot) const { return &entries_[slot].index; }
    u32* length(u32 index) const { return lengths_ + index; }
    std::byte* buffer(u32 index) const { return buffers_ + index * buffer_stride_; }

 private:
    template <class Word>
    Word* at(u64 offset) const {
        return reinterpret_cast<Word*>(base_ + offset);
    }

    std::byte* base_ = nullptr;
    u8* states_ = nullptr;
    u8* owners_ = nullptr;
    ChannelEntry* entries_ = nullptr;
    u32* lengths_ = nullptr;
    std::byte* buffers_ = nullptr;
    u64 buffer_stride_ = 0;
};

// A fresh channel: the END at `first`, every other slot EMPTY, and all buffers the producer's. Tests make channels that
// are old from the start.
template <u32 kStride = kStateStride>
void initialise_channel(std::byte* base, const ChannelGeometry& geometry, u64 first = 0) {
    const ChannelWords<kStride> words(base, geometry);
    if (first < geometry.positions()) first = geometry.positions();
    for (u32 slot = 0; slot < geometry.positions(); ++slot) *words.state(slot) = kEmpty;
    const u32 slot = static_cast<u32>(first % geometry.positions());
    *words.state(slot) = kEnd;
    *words.position(slot) = first;
    *words.head() = first;
}

}  // namespace holdfast
