// Looks at a whole channel without touching it: what it holds, and whether it can be what it says.
//
// On a channel that is in use, a look may be overtaken; it then starts anew, and says so if it never got through.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/channel/params.hpp"
#include "holdfast/shm/memory.hpp"

namespace holdfast {

struct ChannelSlotLook {
    u8 state = 0;
    u64 position = 0;
    u32 index = 0;

    bool operator==(const ChannelSlotLook&) const = default;
};

// One lane, or the way back of a loop.
struct RingSurvey {
    u64 head = 0, end = 0;
    std::vector<ChannelSlotLook> slots;
    std::vector<u8> owners;  // by buffer

    u64 datums() const {
        u64 sum = 0;
        for (const ChannelSlotLook& each : slots)
            sum += (each.state & kData) != 0 && each.position < end;
        return sum;
    }
    // Nothing has moved between two looks.
    bool still(const RingSurvey& before) const {
        return slots == before.slots && head == before.head;
    }
};

// How many buffers are where; the others are their producers' (C1).
struct BufferCounts {
    u64 in_ring = 0;
    u64 returning = 0;  // of a loop
    u64 held = 0;
};

struct ChannelSurvey {
    bool overtaken = false;
    std::vector<u32> producers;  // slot plus 1
    u32 consumer = 0;
    std::vector<RingSurvey> lanes;
    std::optional<RingSurvey> back;
    std::vector<std::string> faults;

    BufferCounts count() const {
        BufferCounts counts;
        for (const RingSurvey& lane : lanes) {
            std::vector<bool> used(lane.owners.size());
            if (back) counts.returning += mark(*back, used);
            counts.in_ring += mark(lane, used);
            for (u32 index = 0; index < lane.owners.size(); ++index)
                counts.held += lane.owners[index] != 0 && !used[index];
        }
        return counts;
    }

 private:
    // Marks the buffers that are in a ring, and returns how many had no mark.
    static u64 mark(const RingSurvey& ring, std::vector<bool>& used) {
        u64 fresh = 0;
        for (const ChannelSlotLook& each : ring.slots) {
            if ((each.state & kData) == 0 || each.index >= used.size() || used[each.index])
                continue;
            used[each.index] = true;
            ++fresh;
        }
        return fresh;
    }
};

namespace detail {

using SurveyLanes = ChannelLanes<const NativeMemory>;

inline RingSurvey look_at(const NativeMemory& memory, const SurveyLanes::Ring& ring) {
    RingSurvey out;
    const auto& words = ring.words();
    out.head = memory.load(words.head(), std::memory_order_acquire);  // pairs with: note_head
    out.slots.resize(ring.geometry().positions());
    out.owners.resize(ring.geometry().pool());
    for (u32 slot = 0; slot < out.slots.size(); ++slot) {
        ChannelSlotLook& each = out.slots[slot];
        // pairs with: push
        each.state = memory.load(words.state(slot), std::memory_order_acquire);
        each.position = memory.load(words.position(slot), std::memory_order_relaxed);
        each.index = memory.load(words.index(slot), std::memory_order_relaxed);
    }
    for (u32 index = 0; index < out.owners.size(); ++index) {
        // pairs with: release
        out.owners[index] = memory.load(words.owner(index), std::memory_order_acquire);
    }
    return out;
}

// Looks at a lane, and at the way back of a loop, until two looks agree. False: they never did.
inline bool look_until_still(const NativeMemory& memory, SurveyLanes& lanes, u32 lane,
                             ChannelSurvey& out) {
    constexpr int kLooks = 64;
    RingSurvey now = look_at(memory, lanes.lane(lane));
    bool still = false;
    for (int looks = 0; looks < kLooks && !still; ++looks) {
        std::optional<RingSurvey> back;
        if (lanes.back() != nullptr) back = look_at(memory, *lanes.back());
        RingSurvey again = look_at(memory, lanes.lane(lane));
        still = again.still(now) && (!back || look_at(memory, *lanes.back()).still(*back));
        now = std::move(again);
        out.back = std::move(back);
    }
    out.lanes.push_back(std::move(now));
    return still;
}

inline ChannelSurvey look_at_all(const NativeMemory& memory, SurveyLanes& lanes) {
    ChannelSurvey out;
    for (u32 producer = 0; producer < lanes.plan().producers; ++producer) {
        // pairs with: claim_role
        out.producers.push_back(
            memory.load(lanes.producer_word(producer), std::memory_order_acquire));
    }
    // pairs with: claim_role
    out.consumer = memory.load(lanes.consumer_word(), std::memory_order_acquire);
    for (u32 lane = 0; lane < lanes.plan().lanes(); ++lane)
        out.overtaken |= !look_until_still(memory, lanes, lane, out);
    return out;
}

// Finds the END, and returns how many slots have one. Of two, the earlier one counts (C4).
inline u32 find_end(RingSurvey& out) {
    u32 ends = 0;
    for (const ChannelSlotLook& each : out.slots) {
        if ((each.state & kEnd) == 0) continue;
        if (ends == 0 || each.position < out.end) out.end = each.position;
        ++ends;
    }
    return ends;
}

// The faults of one ring. `used` are the buffers that rings before it have.
class RingJudge {
 public:
    RingJudge(const SurveyLanes::Ring& ring, const NativeMemory& memory, u64 slot_size,
              std::string where, std::vector<std::string>& faults)
        : ring_(ring),
          memory_(memory),
          slot_size_(slot_size),
          where_(std::move(where)),
          faults_(faults) {}

    void judge(RingSurvey& out, std::vector<bool>& used) {
        const u32 ends = find_end(out);
        for (u32 slot = 0; slot < out.slots.size(); ++slot) state(slot, out.slots[slot]);
        if (ends == 0) say("no slot has the END");
        if (ends > 2) say(std::to_string(ends) + " slots have the END");
        for (u32 slot = 0; slot < out.slots.size(); ++slot)
            if ((out.slots[slot].state & kData) != 0) datum(slot, out.slots[slot], used);
        for (u32 index = 0; index < out.owners.size(); ++index) {
            if (out.owners[index] > kChannelParticipants)
                say("buffer " + std::to_string(index) + ": its owner " +
                    std::to_string(out.owners[index]) + " does not exist");
        }
        if (ends != 0 && out.head > out.end)
            say("the consumer's position " + std::to_string(out.head) + " is beyond the END at " +
                std::to_string(out.end) + " (C2)");
    }

 private:
    void say(const std::string& words) { faults_.push_back(where_ + words); }
    void say(u32 slot, const std::string& words) {
        say("slot " + std::to_string(slot) + ": " + words);
    }

    void state(u32 slot, const ChannelSlotLook& each) {
        if (!plausible_state(each.state))
            say(slot,
                "its state is " + std::to_string(each.state) + ", which no participant writes");
        if ((each.state & kEnd) != 0 && ring_.slot(each.position) != slot)
            say(slot,
                "the END at position " + std::to_string(each.position) + " is not of this slot");
    }

    void datum(u32 slot, const ChannelSlotLook& each, std::vector<bool>& used) {
        const std::string buffer = "its buffer " + std::to_string(each.index);
        if (each.index >= used.size()) return say(slot, buffer + " does not exist");
        if (used[each.index]) say(slot, buffer + " is in two slots");
        used[each.index] = true;
        if (ring_.slot(each.position) != slot)
            say(slot,
                "the datum at position " + std::to_string(each.position) + " is not of this slot");
        if (memory_.load(ring_.words().length(each.index), std::memory_order_relaxed) > slot_size_)
            say(slot, "its datum is longer than a buffer");
    }

    const SurveyLanes::Ring& ring_;
    const NativeMemory& memory_;
    u64 slot_size_;
    std::string where_;
    std::vector<std::string>& faults_;
};

inline void judge(const NativeMemory& memory, SurveyLanes& lanes, ChannelSurvey& out) {
    const ChannelPlan& plan = lanes.plan();
    std::vector<bool> used;
    for (u32 lane = 0; lane < plan.lanes(); ++lane) {
        used.assign(plan.lane.pool(), false);
        const std::string where = plan.lanes() == 1 ? "" : plan.words_of(lane) + ", ";
        RingJudge(lanes.lane(lane), memory, plan.lane.slot_size(), where, out.faults)
            .judge(out.lanes[lane], used);
    }
    if (out.back)
        RingJudge(*lanes.back(), memory, plan.lane.slot_size(), "the way back, ", out.faults)
            .judge(*out.back, used);
    bool roles = out.consumer <= kChannelParticipants;
    for (const u32 producer : out.producers) roles &= producer <= kChannelParticipants;
    if (!roles) out.faults.push_back("a role belongs to a participant that does not exist");
}

}  // namespace detail

inline ChannelSurvey survey_channel(std::byte* base, const ChannelPlan& plan) {
    const NativeMemory memory;
    detail::SurveyLanes lanes(memory, plan, base);
    ChannelSurvey out = detail::look_at_all(memory, lanes);
    if (out.overtaken) {
        for (RingSurvey& lane : out.lanes) detail::find_end(lane);
        if (out.back) detail::find_end(*out.back);
    } else {
        detail::judge(memory, lanes, out);
    }
    return out;
}

}  // namespace holdfast
