// The memory of a process of the channel model between two steps, and the account of a producer in it.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "holdfast/channel/shelf.hpp"
#include "model/model.hpp"

namespace model {

inline constexpr u32 kDatumsMax = 15;
inline constexpr u32 kAuditDatum = 15;
inline constexpr u32 kPoolMax = 7;
inline constexpr u32 kPositionsMax = 4;
inline constexpr u32 kBackPositionsMax = kPoolMax + 1;
inline constexpr u32 kLanesMax = 2;
inline constexpr u8 kNoBuffer = 0xff;

// The part of a ghost that is about one lane. Positions count from the lane's origin.
struct LaneGhost {
    // as its producer
    u8 tail = 0;
    u8 free_count = 0;
    std::array<u8, kPoolMax> where{};
    std::array<u8, kPoolMax> free{};
    std::array<u8, kPositionsMax> in_slot{};
    // as the consumer
    u8 head = 0;
    u8 lost = 0;      // since the last pop
    u8 last = 0;      // position of the last datum popped
    u8 empty_at = 0;  // position of the END that the last pop found, see ChannelRing
};

// A buffer that the consumer holds has the number lane * pool + index.
struct ChannelGhost {
    u8 pc = 0;
    u8 phase = 0;
    u8 lost_now = 0;  // of the last pop
    u8 handle = 0;    // position of the last datum pushed; 0: none
    u8 handle_id = 0;
    u8 handle_lane = 0;
    u8 held_count = 0;
    u8 loan_count = 0;  // buffers that the push under way was lent, or that it displaced
    u8 role = 0;        // bit 0: producer, bit 1: consumer
    u8 producer = 0;    // its number
    u8 turn = 0;        // of the consumer, see ChannelLanes: 0, unless there are several producers
    u8 last_lane = 0;   // that the last datum was popped from, plus 1; 0: no turn is due
    u8 audited = 0;     // of the auditor: lanes or producers that are done
    // The datum that stood in the lane whose turn it was, before a pop took another: lane + 1, and position.
    u8 passed_lane = 0;
    u8 passed = 0;
    // Of the way back: the consumer's END, the producer's position, and where it found the END.
    u8 back_tail = 0;
    u8 back_head = 0;
    u8 back_empty = 0;
    u16 pushed = 0;     // bits: push() returned
    u16 popped = 0;     // pop() returned
    u16 displaced = 0;  // push() returned its buffer
    u16 cancelled = 0;
    std::array<u8, 2> held{};
    std::array<u8, 2> held_id{};
    std::array<u8, 2> spare{};
    u32 bell = 0;
    std::array<u32, kLanesMax> holes{};  // positions of the datums that were cancelled, as bits
    std::array<u8, 4> loan{};
    std::array<LaneGhost, kLanesMax> lane{};
};
static_assert(sizeof(ChannelGhost) <= Local::kSize &&
              std::has_unique_object_representations_v<ChannelGhost>);

// The account of a producer in one lane, out of and into a ghost.
inline Shelf shelf_of(const LaneGhost& ghost, const ChannelGeometry& geometry) {
    std::vector<Where> where;
    std::vector<u32> in_slot, free;
    for (u32 b = 0; b < geometry.pool(); ++b) where.push_back(static_cast<Where>(ghost.where[b]));
    for (u32 s = 0; s < geometry.positions(); ++s)
        in_slot.push_back(ghost.in_slot[s] == kNoBuffer ? Shelf::kNone : ghost.in_slot[s]);
    for (u32 i = 0; i < ghost.free_count; ++i) free.push_back(ghost.free[i]);
    Shelf shelf;
    shelf.restore(where, in_slot, free);
    return shelf;
}

inline void keep_shelf(LaneGhost& ghost, Shelf& shelf) {
    ghost.free = {};
    ghost.free_count = static_cast<u8>(shelf.free_count());
    for (std::size_t i = 0; i < shelf.free_count(); ++i)
        ghost.free[i] = static_cast<u8>(shelf.free_list()[i]);
    for (std::size_t b = 0; b < shelf.where().size(); ++b)
        ghost.where[b] = static_cast<u8>(shelf.where()[b]);
    for (std::size_t s = 0; s < shelf.slots().size(); ++s)
        ghost.in_slot[s] =
            shelf.slots()[s] == Shelf::kNone ? kNoBuffer : static_cast<u8>(shelf.slots()[s]);
}

}  // namespace model
