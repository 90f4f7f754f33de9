// The parameters of a channel: written once into the segment's header, and judged before they are believed.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "holdfast/base/errors.hpp"
#include "holdfast/channel/lanes.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

struct ChannelParams {
    u64 slot_size;
    u32 slots;
    u32 loans;     // buffers that the producer's program has at once
    u32 holds;     // buffers that the consumer's program has at once
    u32 overflow;  // 1: a push into a full ring displaces the oldest datum
    u32 laps;      // how often one pop may be overtaken
    u16 producers;
    u8 priorities;
    u8 loop;          // 1: the consumer's buffers come back through a ring (lanes.hpp)
    char dtype[256];  // of a typed channel, as numpy writes it; empty: bytes
    char shape[128];  // "480,640"
};
static_assert(sizeof(ChannelParams) == 416 && sizeof(ChannelParams) <= 512);

inline ChannelPlan plan_of(const ChannelParams& params) {
    return {ChannelGeometry(params.slots, params.loans, params.holds, params.slot_size),
            params.producers, params.priorities, params.loop != 0};
}

// Two builds understand each other's channels if and only if their fingerprints are equal.
constexpr u64 channel_fingerprint() {
    u64 hash = 1469598103934665603u;
    const auto add = [&](u64 part) {
        hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    };
    for (u64 part : {u64{kChannelVersion}, u64{kChannelParticipants}, u64{kStateStride}}) add(part);
    using G = ChannelGeometry;
    for (u64 part :
         {G::producer_offset(), G::consumer_offset(), G::head_offset(), G::data_bell_offset(),
          G::space_bell_offset(), G::participants_offset(), G::states_offset()})
        add(part);
    for (u64 part : {kChannelProducersMax, kChannelPrioritiesMax}) add(part);
    for (const G& each : {G(1, 1, 1, 1), G(8, 4, 4, 100), G(5000, 9000, 70, 1u << 20)}) {
        for (u64 part : {each.owners_offset(kStateStride), each.entries_offset(kStateStride),
                         each.lengths_offset(kStateStride), each.buffers_offset(kStateStride),
                         each.size(kStateStride), each.buffer_stride(),
                         ChannelPlan{each, 1, 1, true}.size(kStateStride)})
            add(part);
    }
    for (u64 part :
         {offsetof(ChannelEntry, position), offsetof(ChannelEntry, index), sizeof(ChannelEntry),
          offsetof(ParticipantEntry, who), offsetof(ParticipantEntry, counts),
          sizeof(ParticipantEntry), offsetof(ChannelParams, slots), offsetof(ChannelParams, laps),
          offsetof(ChannelParams, producers), offsetof(ChannelParams, loop),
          offsetof(ChannelParams, dtype), offsetof(ChannelParams, shape), sizeof(ChannelParams)})
        add(part);
    for (u8 state : {kEnd, kEmpty, kPending, kData, kHole, kInspected, kOverflow}) add(state);
    return hash;
}

inline ChannelParams channel_params(const Segment& segment) {
    ChannelParams params;
    std::memcpy(&params, segment.header().params.data(), sizeof params);
    const bool sane =
        ChannelGeometry::valid(params.slots, params.loans, params.holds, params.slot_size) &&
        ChannelPlan::valid(params.producers, params.priorities, params.loop != 0) &&
        plan_of(params).size(kStateStride) <= segment.size() && params.overflow <= 1 &&
        params.loop <= 1 && params.laps >= 1 && params.dtype[sizeof params.dtype - 1] == '\0' &&
        params.shape[sizeof params.shape - 1] == '\0' &&
        params.shape[std::strspn(params.shape, "0123456789,")] == '\0';
    if (!sane)
        throw Error(Code::corrupt, segment.path() +
                                       ": its parameters are not possible; remove it with "
                                       "`holdfast channel rm` and create it anew");
    return params;
}

// `first`: where its positions begin, for tests of a channel's old age.
inline void create_channel(const SegmentSpec& wanted, const ChannelParams& params, u64 first = 0) {
    const ChannelPlan plan = plan_of(params);
    SegmentSpec spec = wanted;
    spec.kind = kChannelKind;
    spec.version = kChannelVersion;
    spec.fingerprint = channel_fingerprint();
    spec.size = plan.size(kStateStride);
    std::memcpy(spec.params.data(), &params, sizeof params);
    Segment::create(spec, [&](std::byte* base) { initialise_channel(base, plan, first); });
}

inline std::shared_ptr<Segment> open_channel(const std::string& directory, const std::string& name,
                                             bool adopt) {
    std::shared_ptr<Segment> segment =
        Segment::open(directory, kChannelKind, name, kChannelVersion, channel_fingerprint(), adopt);
    channel_params(*segment);
    return segment;
}

}  // namespace holdfast
