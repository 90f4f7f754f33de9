// The ring and the owners as the bytes of a state tell them, and the invariants that need nothing else.
#pragma once

#include "model/channel/setting.hpp"

namespace model {

// One ring with the owners of its buffers. Positions count from the ring's origin.
class RingPicture {
 public:
    RingPicture() = default;
    RingPicture(const ChannelSetting& setting, const RingPlace& ring, const State& s)
        : n_(ring.geometry.positions()), pool_(ring.geometry.pool()), origin_(ring.origin) {
        for (u32 slot = 0; slot < n_; ++slot) {
            state[slot] = static_cast<u8>(setting.value(s, ring.words.state(slot)));
            position[slot] = setting.value(s, ring.words.position(slot)) - ring.origin;
            index[slot] = static_cast<u32>(setting.value(s, ring.words.index(slot)));
            home_[slot] = static_cast<u32>((slot + n_ - ring.origin % n_) % n_);
            if ((state[slot] & kEnd) == 0) continue;
            if (ends == 0 || position[slot] < end) end = position[slot];
            if (ends == 0 || position[slot] > last_end_) last_end_ = position[slot];
            ++ends;
        }
        for (u32 b = 0; b < pool_; ++b)
            owner[b] = static_cast<u8>(setting.value(s, ring.words.owner(b)));
        for (u32 slot = 0; slot < n_; ++slot) {
            if (committed(slot)) in_ring_ |= 1u << index[slot];
        }
    }

    std::array<u8, kBackPositionsMax> state{};
    std::array<u64, kBackPositionsMax> position{};
    std::array<u32, kBackPositionsMax> index{};
    std::array<u8, kPoolMax> owner{};
    u32 ends = 0;
    u64 end = 0;  // of two, the earlier one

    // A datum of a batch is in the ring with the whole batch, when the END is behind it.
    bool committed(u32 slot) const { return (state[slot] & kData) != 0 && position[slot] < end; }
    bool in_ring(u32 buffer) const { return (in_ring_ >> buffer & 1) != 0; }
    bool holds_position(u64 at) const {
        for (u32 slot = 0; slot < n_; ++slot) {
            if (committed(slot) && position[slot] == at) return true;
        }
        return false;
    }
    bool any_datum() const {
        for (u32 slot = 0; slot < n_; ++slot) {
            if (committed(slot)) return true;
        }
        return false;
    }
    bool is_end(u64 at) const {
        for (u32 slot = 0; slot < n_; ++slot) {
            if ((state[slot] & kEnd) != 0 && position[slot] == at) return true;
        }
        return false;
    }

    // Throws Violation.
    void check() const {
        u32 seen = 0;
        for (u32 slot = 0; slot < n_; ++slot) {
            if (!plausible_state(state[slot]))
                throw Violation("state",
                                text_of("slot ", slot, " has the state ", int{state[slot]}));
            const bool named = (state[slot] & (kData | kEnd)) != 0;
            if (named && position[slot] % n_ != home_[slot])
                throw Violation("C3", text_of("slot ", slot, " has the position ", position[slot]));
            if ((state[slot] & kData) == 0) continue;
            if (index[slot] >= pool_ || (seen >> index[slot] & 1) != 0)
                throw Violation("twice",
                                text_of("buffer ", index[slot], " stands twice in the ring"));
            seen |= 1u << index[slot];
        }
        if (origin_ + last_end_ > kChannelPositionMax)
            throw Violation("limit", "the END is beyond the last position");
        if (ends == 0 || ends > 2 || last_end_ - end >= n_)
            throw Violation("C4",
                            text_of("there are ", ends, " ENDs, ", last_end_ - end, " apart"));
    }

 private:
    u32 n_ = 0;
    u32 pool_ = 0;
    u64 origin_ = 0;
    u64 last_end_ = 0;
    u32 in_ring_ = 0;
    std::array<u32, kBackPositionsMax> home_{};  // of each slot: position mod n, from the origin
};

// All rings.
class Picture {
 public:
    Picture(const ChannelSetting& setting, const State& s) : setting_(setting) {
        for (u32 i = 0; i < setting.plan.lanes(); ++i)
            lanes_[i] = RingPicture(setting, setting.lanes[i], s);
        if (setting.plan.loop) back_ = RingPicture(setting, setting.back, s);
    }

    const RingPicture& lane(u32 lane) const { return lanes_[lane]; }
    const RingPicture& back() const { return back_; }
    // Of a buffer with the number lane * pool + index.
    bool in_ring(u32 buffer) const { return of(buffer).in_ring(index(buffer)); }
    bool on_its_way_back(u32 buffer) const {
        return setting_.plan.loop && back_.in_ring(index(buffer));
    }
    bool in_a_ring(u32 buffer) const { return in_ring(buffer) || on_its_way_back(buffer); }
    u8 owner(u32 buffer) const { return of(buffer).owner[index(buffer)]; }
    bool any_datum() const {
        for (u32 i = 0; i < setting_.plan.lanes(); ++i) {
            if (lanes_[i].any_datum()) return true;
        }
        return false;
    }

    // Throws Violation.
    void check() const {
        for (u32 i = 0; i < setting_.plan.lanes(); ++i) lanes_[i].check();
        if (!setting_.plan.loop) return;
        back_.check();
        for (u32 b = 0; b < setting_.buffers(); ++b) {
            if (in_ring(b) && on_its_way_back(b))
                throw Violation("twice",
                                text_of("buffer ", b, " is in the ring, and on its way back"));
        }
    }

 private:
    const RingPicture& of(u32 buffer) const { return lanes_[buffer / setting_.geometry.pool()]; }
    u32 index(u32 buffer) const { return buffer % setting_.geometry.pool(); }

    const ChannelSetting& setting_;
    std::array<RingPicture, kLanesMax> lanes_;
    RingPicture back_;
};

}  // namespace model
