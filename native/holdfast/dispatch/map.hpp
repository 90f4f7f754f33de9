// A map from ordinals to small values: open addressing, linear probing, and removal without
// tombstones. So a table through which millions of entries pass stays as fast as at the start.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "holdfast/base/types.hpp"

namespace holdfast {

// Invariant: between a key's home and its slot there is no empty slot; at most 3/4 of the slots are
// in use.
class OrdinalMap {
 public:
    static constexpr u64 kEmpty = ~u64{0};  // no topic gets that far
    static constexpr u32 kNothing = ~u32{0};

    u64 size() const { return size_; }
    u64 places() const { return keys_.size(); }

    u32 find(u64 ordinal) const {
        if (size_ == 0) return kNothing;
        for (u64 at = home(ordinal);; at = (at + 1) & mask_) {
            if (keys_[at] == ordinal) return values_[at];
            if (keys_[at] == kEmpty) return kNothing;
        }
    }

    // Returns the slot of its value, with `fresh` in it if the key is new. Valid until the next
    // change.
    u32& at(u64 ordinal, u32 fresh) {
        if (4 * (size_ + 1) > 3 * keys_.size()) rehash(std::max<u64>(16, 2 * keys_.size()));
        u64 at = home(ordinal);
        while (keys_[at] != ordinal && keys_[at] != kEmpty) at = (at + 1) & mask_;
        if (keys_[at] == kEmpty) {
            keys_[at] = ordinal;
            values_[at] = fresh;
            ++size_;
        }
        return values_[at];
    }

    bool erase(u64 ordinal) {
        if (size_ == 0) return false;
        u64 hole = home(ordinal);
        while (keys_[hole] != ordinal) {
            if (keys_[hole] == kEmpty) return false;
            hole = (hole + 1) & mask_;
        }
        // Keys that were pushed past the hole move back into it.
        for (u64 at = (hole + 1) & mask_; keys_[at] != kEmpty; at = (at + 1) & mask_) {
            if (((at - home(keys_[at])) & mask_) < ((at - hole) & mask_)) continue;
            keys_[hole] = keys_[at];
            values_[hole] = values_[at];
            hole = at;
        }
        keys_[hole] = kEmpty;
        --size_;
        return true;
    }

    void clear() {
        keys_ = {};
        values_ = {};
        mask_ = 0;
        size_ = 0;
    }

    template <class Visit>
    void each(Visit visit) const {
        for (u64 at = 0; at < keys_.size(); ++at)
            if (keys_[at] != kEmpty) visit(keys_[at], values_[at]);
    }

    template <class Visit>
    void each_ordinal(Visit visit) const {
        for (const u64 key : keys_)
            if (key != kEmpty) visit(key);
    }

    bool sound() const {
        u64 count = 0;
        bool found = true;
        each([&](u64 key, u32 value) {
            ++count;
            found = found && find(key) == value;
        });
        return found && count == size_ && 4 * size_ <= 3 * keys_.size();
    }

 private:
    // Ordinals come and go in runs: eight neighbours share a cache line, and only groups of eight
    // are spread over the table.
    u64 home(u64 ordinal) const {
        return (((ordinal >> 3) * 0x9e3779b97f4a7c15) >> shift_ << 3) | (ordinal & 7);
    }

    void rehash(u64 places) {
        std::vector<u64> keys(places, kEmpty);
        std::vector<u32> values(places);
        keys.swap(keys_);
        values.swap(values_);
        mask_ = places - 1;
        shift_ = 64 - static_cast<u32>(std::countr_zero(places >> 3));
        for (u64 old = 0; old < keys.size(); ++old) {
            if (keys[old] == kEmpty) continue;
            u64 at = home(keys[old]);
            while (keys_[at] != kEmpty) at = (at + 1) & mask_;
            keys_[at] = keys[old];
            values_[at] = values[old];
        }
    }

    std::vector<u64> keys_;
    std::vector<u32> values_;
    u64 mask_ = 0;
    u64 size_ = 0;
    u32 shift_ = 63;
};

// Visits each ordinal of a range, or each of the table that lies in it, whichever is less. The visit
// may remove it.
template <class Table, class Visit>
void sweep(const Table& table, u64 first, u64 end, Visit visit) {
    if (table.size() == 0 || first >= end) return;
    if (end - first <= table.size()) {
        for (u64 ordinal = first; ordinal < end; ++ordinal) visit(ordinal);
        return;
    }
    std::vector<u64> found;
    table.each_ordinal([&](u64 ordinal) {
        if (first <= ordinal && ordinal < end) found.push_back(ordinal);
    });
    for (const u64 ordinal : found) visit(ordinal);
}

}  // namespace holdfast
