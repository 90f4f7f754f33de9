// The newest message of each key, found in a bounded memory: the first half of a compaction.
//
//   pass 1   keys with hashes in [0, ............. last]      every message gets a number, and a bit:
//   pass 2   [last + 1, ........... last]                     1 while it is the newest of its key
//   ...
//
// The table holds one share of the keys' hashes. When it is full, the share is halved; what it does
// not cover is the work of the next pass. A pass sees each message of its keys in order: it sets the
// bit of a message, and clears that of the message before it. So a key that a former pass began and
// gave up comes out right. Memory: the table, and one bit for each message.
//
// A key counts by its 128-bit hash under a random key (base/siphash.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/siphash.hpp"

namespace holdfast {

// One bit for each message.
class MessageBits {
 public:
    void put(u64 number, bool value) {
        if (number / 64 >= words_.size()) words_.resize(number / 64 + 1);
        const u64 bit = u64{1} << (number % 64);
        if (value)
            words_[number / 64] |= bit;
        else
            words_[number / 64] &= ~bit;
    }
    bool get(u64 number) const {
        return number / 64 < words_.size() && (words_[number / 64] >> (number % 64) & 1) != 0;
    }
    std::size_t memory() const { return words_.capacity() * sizeof(u64); }

 private:
    std::vector<u64> words_;
};

class NewestOfKeys {
 public:
    // Memory: bytes of the table, also while it is rebuilt.
    NewestOfKeys(std::size_t memory, const SipKey& key)
        : most_(std::max(memory / sizeof(Slot) / 3 * 2, kSlotsMin)), key_(key) {
        while (most_ >> (halvings_ + 1) >= kSlotsMin) ++halvings_;
    }

    // Notes the message of this number, which is newer than all before it in this pass. `binary`:
    // its key is bytes in base64, and so another one than the same text. `deleted`: it says that its
    // key has no value.
    void note(std::string_view key, bool binary, u64 number, bool deleted) {
        const Hash128 hash = siphash(key, {key_.first, key_.second ^ u64{binary}});
        if (hash.low < first_ || hash.low > last_) return;
        if (slots_.empty()) slots_.resize(most_ >> halvings_);
        __builtin_prefetch(&slots_[place(hash)]);
        Coming& next = coming_[noted_++ % kAhead];
        if (noted_ > kAhead) apply(next);
        next = {hash, deleted ? kDeleted : number, number};
    }

    // Ends a pass. Returns whether all keys were covered; else everything is to be noted again.
    bool end_pass() {
        for (u64 at = noted_ < kAhead ? 0 : noted_ - kAhead; at < noted_; ++at)
            apply(coming_[at % kAhead]);
        noted_ = 0;
        slots_.clear();
        slots_.shrink_to_fit();
        used_ = 0;
        if (last_ == kLast) return true;
        const u64 width = last_ - first_;  // the next share is as wide
        first_ = last_ + 1;
        last_ = kLast - first_ < width ? kLast : first_ + width;
        return false;
    }

    MessageBits bits;

    std::size_t memory() const { return slots_.capacity() * sizeof(Slot) + bits.memory(); }

 private:
    struct Slot {
        Hash128 hash;
        u64 number = kFree;
    };
    // A message whose slot is on its way into the cache: waiting for it took most of the time.
    struct Coming {
        Hash128 hash;
        u64 value, number;
    };
    static constexpr u64 kAhead = 16;
    static constexpr u64 kFree = std::numeric_limits<u64>::max();
    static constexpr u64 kDeleted = kFree - 1;
    static constexpr u64 kLast = std::numeric_limits<u64>::max();
    static constexpr std::size_t kSlotsMin = 64;

    void apply(const Coming& each) {
        Slot* slot = find(each.hash);
        if (slot->number == kFree) {
            slot = each.hash.low <= last_ ? insert(each.hash) : nullptr;
            if (slot == nullptr) return;  // the share was halved, and no longer covers it
        } else if (slot->number != kDeleted) {
            bits.put(slot->number, false);
        }
        slot->number = each.value;
        bits.put(each.number, each.value != kDeleted);
    }

    // The slot of a hash, or the free one where it belongs.
    Slot* find(const Hash128& hash) {
        const std::size_t size = slots_.size();
        std::size_t at = place(hash);
        while (slots_[at].number != kFree && slots_[at].hash != hash)
            at = at + 1 < size ? at + 1 : 0;
        return &slots_[at];
    }
    std::size_t place(const Hash128& hash) const {
        return static_cast<std::size_t>((hash.high >> 32) * slots_.size() >> 32);
    }
    bool is_full() const { return 8 * (used_ + 1) > 7 * slots_.size(); }

    // Returns null if the share no longer covers the hash.
    Slot* insert(const Hash128& hash) {
        if (is_full() && halvings_ > 0) {
            std::vector<Slot> before(most_ >> --halvings_);
            before.swap(slots_);
            fill(before);
        }
        while (is_full() && last_ > first_) {
            last_ = first_ + (last_ - first_) / 2;
            halve();
        }
        if (hash.low > last_) return nullptr;
        Slot* slot = find(hash);
        slot->hash = hash;
        ++used_;
        return slot;
    }

    // Keeps what the share still covers.
    void halve() {
        std::vector<Slot> kept;
        const auto stays = [&](const Slot& each) {
            return each.number != kFree && each.hash.low <= last_;
        };
        kept.reserve(static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), stays)));
        std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(kept), stays);
        std::fill(slots_.begin(), slots_.end(), Slot{});
        fill(kept);
    }

    void fill(const std::vector<Slot>& from) {
        used_ = 0;
        for (const Slot& each : from) {
            if (each.number == kFree) continue;
            *find(each.hash) = each;
            ++used_;
        }
    }

    std::size_t most_;  // slots; two thirds of the memory, so that half as many fit beside them
    u32 halvings_ = 0;  // the table has most_ >> halvings_ slots
    SipKey key_;
    u64 first_ = 0, last_ = kLast;
    std::vector<Slot> slots_;
    std::size_t used_ = 0;
    std::array<Coming, kAhead> coming_{};
    u64 noted_ = 0;  // messages of this pass that were put there
};

}  // namespace holdfast
