// The producer's account of the pool: where it knows each buffer to be. Private to its process; a successor makes its own.
#pragma once

#include <span>
#include <vector>

#include "holdfast/channel/ring.hpp"

namespace holdfast {

enum class Where : u8 {
    free,    // to be filled
    loaned,  // in the hands of the program: a loan, or a displaced datum that it looks at
    ring,    // pushed, and not known to be popped
    out,     // popped; the consumer has it until its owner is 0
};

// The producer's end of the ring that carries buffers back in a loop; a plain channel has none.
template <class Ring>
struct WayBack {
    static constexpr u32 kLaps = 64;  // such a ring does not overflow, so that no pop is overtaken

    Ring* ring = nullptr;
    u64 head = 0;

    explicit operator bool() const { return ring != nullptr; }
    void start() { head = ring->load_head(); }
    // Takes the next buffer. It is the producer's with the same swap as a datum is a consumer's.
    Handover take(u32& index) {
        Popped out;
        const Handover result = ring->pop(head, 0, kLaps, out);
        index = out.index;
        return result;
    }
};

class Shelf {
 public:
    static constexpr u32 kNone = 0xffffffffu;

    Shelf() = default;
    explicit Shelf(const ChannelGeometry& geometry)
        : where_(geometry.pool(), Where::free),
          in_slot_(geometry.positions(), kNone),
          slot_of_(geometry.pool(), 0) {
        for (u32 index = geometry.pool(); index-- > 0;) free_.push_back(index);
    }

    // Makes the account of a producer that has just got the role, from the ring and the owners. The ring is read first: a
    // buffer that has left it has its owner already. False: the ring names a buffer twice, or one that does not exist.
    template <class Ring>
    bool start(Ring& ring, WayBack<Ring>& back) {
        const ChannelGeometry& geometry = ring.geometry();
        where_.assign(geometry.pool(), Where::out);
        in_slot_.assign(geometry.positions(), kNone);
        slot_of_.assign(geometry.pool(), 0);
        free_.clear();
        if (back) back.start();
        for (u32 slot = 0; slot < geometry.positions(); ++slot) {
            u32 index = kNone;
            if (!ring.buffer_in(slot, index)) continue;
            if (index >= geometry.pool() || where_[index] == Where::ring) return false;
            pushed(slot, index);
        }
        return reclaim(ring, back);
    }

    // Lends a free buffer to the program. kNone: all are in use, or what came back is damaged.
    template <class Ring>
    u32 lend(Ring& ring, WayBack<Ring>& back) {
        damaged_ = false;
        if (free_.empty() && back) take_back(ring, back);
        if (free_.empty() && !damaged_) reclaim(ring, back);
        if (free_.empty() || damaged_) return kNone;
        const u32 index = free_.back();
        free_.pop_back();
        where_[index] = Where::loaned;
        return index;
    }
    // The last lend() or reclaim() met a buffer on its way back that the consumer did not have, or a damaged ring.
    bool damaged() const { return damaged_; }

    // The program gives a loan back without pushing it.
    void give_back(u32 index) {
        where_[index] = Where::free;
        free_.push_back(index);
    }

    // A push froze `slot`. Returns the buffer that was displaced from it, or kNone.
    u32 frozen(u32 slot, bool had_data) {
        const u32 index = in_slot_[slot];
        if (index == kNone) return kNone;
        in_slot_[slot] = kNone;
        where_[index] = had_data ? Where::loaned : Where::out;
        return had_data ? index : kNone;
    }
    void pushed(u32 slot, u32 index) {
        where_[index] = Where::ring;
        in_slot_[slot] = index;
        slot_of_[index] = slot;
    }
    // cancel() withdrew the datum in `slot`. Returns its buffer, which is the program's now.
    u32 withdrawn(u32 slot) { return frozen(slot, true); }
    u32 in_slot(u32 slot) const { return in_slot_[slot]; }

    // Finds the buffers that the consumer has given back, or that were cleared for it. As many accesses as the channel has
    // slots and buffers, at most; in a loop also those of the buffers on their way back. False: see damaged().
    //
    // In a loop a buffer without an owner may be on its way back: its consumer pushed it there, and died. Then the push was
    // before the clearing. So owners are read first and the way back is emptied next: what it did not bring is not in it.
    template <class Ring>
    bool reclaim(Ring& ring, WayBack<Ring>& back) {
        damaged_ = false;
        for (u32 slot = 0; slot < in_slot_.size(); ++slot) {
            if (in_slot_[slot] != kNone && !ring.has_data(slot)) frozen(slot, false);
        }
        std::vector<u32> cleared;
        for (u32 index = 0; index < where_.size(); ++index) {
            if (where_[index] != Where::out || ring.owner_of(index) != 0) continue;
            if (back)
                cleared.push_back(index);
            else
                give_back(index);
        }
        while (back && take_back(ring, back)) {
        }
        if (damaged_) return false;
        for (u32 index : cleared) {
            if (where_[index] == Where::out) give_back(index);
        }
        return true;
    }

    std::span<Where> where() { return where_; }
    std::span<u32> slots() { return in_slot_; }
    std::size_t free_count() const { return free_.size(); }
    // For the explorer, which keeps an account as bytes between two steps.
    void restore(std::span<const Where> where, std::span<const u32> in_slot,
                 std::span<const u32> free) {
        where_.assign(where.begin(), where.end());
        in_slot_.assign(in_slot.begin(), in_slot.end());
        free_.assign(free.begin(), free.end());
        slot_of_.assign(where_.size(), 0);
        for (u32 slot = 0; slot < in_slot_.size(); ++slot) {
            if (in_slot_[slot] != kNone) slot_of_[in_slot_[slot]] = slot;
        }
    }
    std::span<const u32> free_list() const { return free_; }

 private:
    // Takes one buffer from the way back. False: none is there, or damage.
    template <class Ring>
    bool take_back(Ring& ring, WayBack<Ring>& back) {
        u32 index = kNone;
        const Handover result = back.take(index);
        if (result == Handover::ok && came_back(ring, index)) return true;
        damaged_ = result == Handover::ok || result == Handover::corrupt;
        return false;
    }

    // False: the consumer cannot have had this buffer.
    template <class Ring>
    bool came_back(Ring& ring, u32 index) {
        const u32 slot = slot_of_[index];
        if (where_[index] == Where::ring && !ring.has_data(slot)) frozen(slot, false);
        if (where_[index] != Where::out) return false;
        give_back(index);
        return true;
    }

    std::vector<Where> where_;  // by buffer
    std::vector<u32> in_slot_;  // the buffer that was last pushed to each slot
    std::vector<u32> slot_of_;  // by buffer, the slot that it was last pushed to
    bool damaged_ = false;
    std::vector<u32> free_;
};

}  // namespace holdfast
