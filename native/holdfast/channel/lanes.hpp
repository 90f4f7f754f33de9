// Lanes: how a channel has several producers and priorities, and how a loop has its way back.
//
// A lane is a whole ring with its own pool (ring.hpp): one for each producer and priority. So a producer that is stopped or
// dead in the middle of a push is in no other's way, and each push stays wait-free. Nothing wider than a byte decides, and
// there is no generation that could wrap.
//
//   | lane 0: producer 0, priority 0 | lane 1: producer 0, priority 1 | ... | lane of the last producer | way back |
//
// All lanes share the participants and the consumer's role, which stand in lane 0. A producer's role stands in its first
// lane. All producers ring the data bell of lane 0; the space bell of a producer is in its first lane.
//
// Order: a pop looks at the lanes from the highest priority to the lowest, and within a priority at the producers in turn.
// So it takes a datum only if it found the lanes of higher priorities empty, each at its own moment. Within a lane the order
// is that of the pushes. Of k producers with the same priority, none waits for more than k - 1 data of the others.
//
// A loop is one lane with a second ring over the same pool and owners. The consumer pushes the buffers into it that it is
// done with. The producer takes them from there, which costs as much in a large pool as in a small one. C1 holds with both
// rings: a buffer is in a ring, or its owner byte tells. The consumer's mark stays in that byte until the producer takes
// the buffer. If the consumer dies, the mark is cleared as for a plain channel. A buffer that was on its way back is in the
// ring; the others are found by the search (Shelf::reclaim).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/channel/ring.hpp"

namespace holdfast {

inline constexpr u32 kChannelProducersMax = 16;
inline constexpr u32 kChannelPrioritiesMax = 8;
inline constexpr u32 kChannelLanesMax = kChannelProducersMax * kChannelPrioritiesMax;

struct ChannelPlan {
    ChannelGeometry lane{};
    u32 producers = 1;
    u32 priorities = 1;
    bool loop = false;

    static bool valid(u64 producers, u64 priorities, bool loop) {
        return producers >= 1 && producers <= kChannelProducersMax && priorities >= 1 &&
               priorities <= kChannelPrioritiesMax &&
               (!loop || (producers == 1 && priorities == 1));
    }

    constexpr u32 lanes() const { return producers * priorities; }
    constexpr u32 lane_of(u32 producer, u32 priority) const {
        return producer * priorities + priority;
    }
    constexpr u32 producer_of(u32 lane) const { return lane / priorities; }
    constexpr u32 priority_of(u32 lane) const { return lane % priorities; }
    // "producer 2, priority 0"
    std::string words_of(u32 lane) const {
        return "producer " + std::to_string(producer_of(lane)) + ", priority " +
               std::to_string(priority_of(lane));
    }
    constexpr u64 offset(u32 lane, u32 stride) const { return lane * this->lane.size(stride); }
    constexpr u64 back_offset(u32 stride) const { return offset(lanes(), stride); }
    constexpr u64 size(u32 stride) const {
        return back_offset(stride) + (loop ? lane.back().size(stride) : 0);
    }
};

// A fresh channel. `first`: see initialise_channel of one lane.
template <u32 kStride = kStateStride>
void initialise_channel(std::byte* base, const ChannelPlan& plan, u64 first = 0) {
    for (u32 lane = 0; lane < plan.lanes(); ++lane)
        initialise_channel<kStride>(base + plan.offset(lane, kStride), plan.lane, first);
    if (plan.loop)
        initialise_channel<kStride>(base + plan.back_offset(kStride), plan.lane.back(), first);
}

// Where a consumer stands.
struct LaneCursors {
    std::vector<u64> heads;  // by lane, its next position
    std::vector<u64> lost;   // by lane, since the last pop from it
    std::vector<u32> turns;  // by priority, the producer that is looked at first
    u64 back_tail = 0;       // of a loop: the END of the way back
};

template <class Memory, u32 kStride = kStateStride>
class ChannelLanes {
 public:
    using Ring = ChannelRing<Memory, kStride>;

    ChannelLanes(Memory& memory, const ChannelPlan& plan, std::byte* base) : plan_(plan) {
        lanes_.reserve(plan.lanes());
        for (u32 lane = 0; lane < plan.lanes(); ++lane)
            lanes_.emplace_back(memory, plan.lane, base + plan.offset(lane, kStride));
        if (plan.loop)
            back_.emplace(memory, plan.lane.back(), base + plan.back_offset(kStride), lanes_[0]);
    }

    const ChannelPlan& plan() const { return plan_; }
    Ring& lane(u32 lane) { return lanes_[lane]; }
    const Ring& lane(u32 lane) const { return lanes_[lane]; }
    Ring& lane(u32 producer, u32 priority) { return lanes_[plan_.lane_of(producer, priority)]; }
    Ring* back() { return back_ ? &*back_ : nullptr; }

    u32* producer_word(u32 producer) const {
        return lanes_[plan_.lane_of(producer, 0)].words().producer();
    }
    u32* consumer_word() const { return lanes_[0].words().consumer(); }
    u32* data_bell() const { return lanes_[0].words().data_bell(); }
    u32* space_bell(u32 producer) const {
        return lanes_[plan_.lane_of(producer, 0)].words().space_bell();
    }
    // After a push, and after a pop or release: see ChannelRing.
    void announce_datum() { lanes_[0].announce_datum(); }
    void announce_space(u32 producer) { lane(producer, 0).announce_space(); }

    // Gives the producers what the participant in `slot` held. The caller shares its lock byte.
    u32 clear_owner(u8 slot) {
        u32 cleared = 0;
        for (Ring& lane : lanes_) cleared += lane.clear_owner(slot);
        return cleared;
    }

    // ---- the consumer's side

    // Returns where a consumer goes on that has just got the role. It completes what the last one left on the way back:
    // if that is damaged, the fault is the way back's.
    Handover start_consumer(LaneCursors& at) {
        at = {};
        for (Ring& lane : lanes_) at.heads.push_back(lane.load_head());
        at.lost.assign(lanes_.size(), 0);
        at.turns.assign(plan_.priorities, 0);
        return back_ ? back_->recover_producer(at.back_tail) : Handover::ok;
    }

    // In a loop: hands a buffer back, instead of a release. False: not a loop, or the ring is damaged, which the producer
    // finds.
    bool send_back(LaneCursors& at, u32 index) {
        return back_ &&
               back_->push(at.back_tail, {&index, 1}, false, [](u32, bool) {}) == Handover::ok;
    }

    // Takes a datum; `out.lane` tells from which lane, also when the result is corrupt. A lane whose producer overtakes the
    // pop too often does not keep it from the others.
    Handover pop(LaneCursors& at, u8 mark, u32 laps, Popped& out) {
        Handover result = Handover::empty;
        for (u32 priority = plan_.priorities; priority-- > 0;) {
            for (u32 i = 0; i < plan_.producers; ++i) {
                const u32 producer = (at.turns[priority] + i) % plan_.producers;
                const Handover found = look(at, plan_.lane_of(producer, priority), mark, laps, out);
                if (found == Handover::ok) at.turns[priority] = (producer + 1) % plan_.producers;
                if (found == Handover::ok || found == Handover::corrupt) return found;
                if (found == Handover::starved) result = found;
            }
        }
        return result;
    }

 private:
    Handover look(LaneCursors& at, u32 lane, u8 mark, u32 laps, Popped& out) {
        out.lane = lane;
        out.lost = at.lost[lane];
        const Handover result = lanes_[lane].pop(at.heads[lane], mark, laps, out);
        at.lost[lane] = result == Handover::ok ? 0 : out.lost;
        return result;
    }

    ChannelPlan plan_;
    std::vector<Ring> lanes_;
    std::optional<Ring> back_;
};

}  // namespace holdfast
