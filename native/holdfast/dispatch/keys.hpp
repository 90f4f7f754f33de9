// The keys of a Key_Shared subscription: which hash is with which consumer, and which entries wait
// for that. Part of the dispatcher's tables (tables.hpp).
//
//            hold()                       give_back()
//   read ───────────▶ held by a consumer ────────────▶ waiting, or delayed
//     └─ wait() ─▶ waiting ── take(), read, hold() ──▶ held
//   drop(): from any state, for good
//
// An entry is *known* while it is held, waiting, delayed, or held at another member. Its hash is
// kept with it, so that no entry is read again before it can be delivered.
//
// Invariants (docs/internals/key-shared.md): I260 one consumer for each hash, I261 the order of each
// hash, I262 the lists of seats. Such a list has each hash whose first waiting entry is free.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/dispatch/runs.hpp"
#include "holdfast/dispatch/split.hpp"

namespace holdfast {

enum class KeyState : u32 { held, waiting, delayed, away };  // away: held at another member

// A hash of which entries are known.
struct HashNode {
    u32 hash = 0;
    u32 held = 0;          // entries with `holder`
    u32 holder = kNoNode;  // the slot of a consumer
    u32 away = 0;          // entries with consumers of other members
    u32 waiting = 0;       // also delayed ones
    u32 blocked = 0;       // how often an entry had to wait for another consumer
    u32 seat = kNoNode;    // where it is listed as ready
    u64 listed = 0;        // its key in that list
};

// A consumer to which hashes belong.
struct KeySeat {
    u64 consumer = 0;     // its id in these tables; 0: it is at another member, or not attached
    u32 slot = kNoNode;   // its slot in these tables
    bool open = true;     // at another member: it may have permits
    std::set<u64> ready;  // first waiting ordinal << 16 | hash
};

// A hash whose new consumer waits for the one that holds entries of it.
struct Draining {
    u32 hash;
    u32 entries;
    u32 blocked;
    u32 holder;  // slot
    u32 seat;    // the consumer that waits; kNoNode: none
};

class KeyTable {
 public:
    // `unordered`: a hash moves at once, although its old consumer holds entries of it.
    explicit KeyTable(bool unordered) : unordered_(unordered) {}

    bool unordered() const { return unordered_; }
    const std::vector<KeySeat>& seats() const { return seats_; }
    const KeySplit& split() const { return split_; }
    u32 seat_of(u32 hash) const { return split_.seat_of(hash); }
    u64 waiting() const { return waiting_.size(); }
    u64 known() const { return known_.size(); }
    bool knows(u64 ordinal) const { return known_.find(ordinal) != OrdinalMap::kNothing; }

    // A consumer has joined or left: hashes belong to others now.
    void assign(std::vector<KeyRange> ranges, std::vector<KeySeat> seats) {
        if (!KeySplit::sound(ranges, seats.size()))
            throw Error(Code::misuse, "ranges of hashes that overlap, or are not in order");
        split_ = KeySplit(std::move(ranges));
        seats_ = std::move(seats);
        for (HashNode& node : nodes_) {
            node.seat = kNoNode;
            if (alive(node)) list(node);
        }
    }
    // The consumer of a slot has left, and the slot may be given to another one.
    void unseat(u32 slot) {
        for (KeySeat& seat : seats_) {
            if (seat.slot != slot) continue;
            seat.slot = kNoNode;
            seat.consumer = 0;
        }
        // It holds nothing any more. Hashes of others stay listed as they are: a place does not depend
        // on the slot of its seat, but for its own hashes.
        for (HashNode& node : nodes_)
            if (node.holder == slot && alive(node)) list(node);
    }

    // -- deciding -----------------------------------------------------------------------------------

    // The slot of the consumer that may get this entry now; kNoNode: it has to wait.
    u32 admit(u32 hash, u64 ordinal) {
        const u32 seat = seat_of(hash);
        const u32 slot = seat == kNoNode ? kNoNode : seats_[seat].slot;
        if (slot == kNoNode || unordered_) return slot;
        HashNode* node = find(hash);
        if (node == nullptr) return slot;
        if (node->away > 0 || (node->held > 0 && node->holder != slot)) {
            node->blocked += node->blocked < ~u32{0} ? 1 : 0;
            return kNoNode;
        }
        return node->waiting > 0 && first_waiting(hash) < ordinal ? kNoNode : slot;
    }

    // Whether an entry can be delivered to one of the consumers here that `may_take`.
    template <class MayTake>
    bool any_ready(MayTake may_take) const {
        for (const KeySeat& seat : seats_)
            if (seat.slot != kNoNode && !seat.ready.empty() && may_take(seat.slot)) return true;
        return false;
    }
    template <class MayTake>
    u64 first_ready(MayTake may_take) const {
        u64 first = ~u64{0};
        for (const KeySeat& seat : seats_)
            if (seat.slot != kNoNode && !seat.ready.empty() && may_take(seat.slot))
                first = std::min(first, *seat.ready.begin() >> 16);
        return first;
    }

    // Ordinals to read again, close together, for consumers with a budget (a slot's number of
    // entries). They stay waiting until they are held. The consumers take turns.
    template <class Budget>
    std::vector<Run> take(u64 count_max, u64 gap_max, Budget budget) {
        std::vector<u64> found;
        const std::size_t seats = seats_.size();
        for (std::size_t i = 0; i < seats && found.size() < 4 * count_max; ++i) {
            const KeySeat& seat = seats_[(turn_ + i) % seats];
            if (seat.slot == kNoNode || seat.ready.empty()) continue;
            collect(seat, std::min(count_max, budget(seat.slot)), found);
        }
        ++turn_;
        std::sort(found.begin(), found.end());
        std::vector<Run> runs;
        for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), count_max); ++i) {
            if (!runs.empty() && found[i] - runs.back().end > gap_max) break;
            if (!runs.empty() && runs.back().end == found[i])
                ++runs.back().end;
            else
                runs.push_back({found[i], found[i] + 1});
        }
        return runs;
    }

    // -- following ----------------------------------------------------------------------------------

    void hold(u32 hash, u64 ordinal, u32 slot) {
        HashNode& node = at(hash);
        unwait(node, ordinal);
        ++node.held;
        node.holder = slot;
        mark(ordinal, hash, KeyState::held);
        list(node);
    }
    void wait(u32 hash, u64 ordinal) {
        HashNode& node = at(hash);
        if (waiting_.insert(key_of(hash, ordinal)).second) ++node.waiting;
        mark(ordinal, hash, KeyState::waiting);
        list(node);
    }
    // A held or delayed entry is to be delivered again. Returns false if it is not known.
    bool give_back(u64 ordinal, KeyState state) {
        const u32 value = known_.find(ordinal);
        if (value == OrdinalMap::kNothing) return false;
        HashNode& node = at(value & 0xffff);
        leave(node, ordinal, state_of(value));
        // Where order does not matter, a delayed entry does not hold up those behind it.
        if (!(unordered_ && state == KeyState::delayed) &&
            waiting_.insert(key_of(node.hash, ordinal)).second)
            ++node.waiting;
        mark(ordinal, node.hash, state);
        list(node);
        return true;
    }
    // Acknowledged, or not to be known any more. Returns true if its hash was drained by that.
    bool drop(u64 ordinal) {
        const u32 value = known_.find(ordinal);
        if (value == OrdinalMap::kNothing) return false;
        HashNode& node = at(value & 0xffff);
        const bool was = is_draining(node);
        leave(node, ordinal, state_of(value));
        known_.erase(ordinal);
        const bool drained = was && node.held == 0;
        list(node);
        return drained;
    }
    // It was read again and left out, because something else takes it: nothing waits for it.
    void filtered(u64 ordinal) {
        const u32 value = known_.find(ordinal);
        if (value != OrdinalMap::kNothing && state_of(value) == KeyState::waiting) drop(ordinal);
    }
    // Drops those that wait, from an ordinal on: they will be read in their turn.
    void unread(u64 from) {
        std::vector<u64> gone;
        for (const u64 key : waiting_) {
            const u64 ordinal = key & kOrdinals;
            if (ordinal >= from && state_of(known_.find(ordinal)) == KeyState::waiting)
                gone.push_back(ordinal);
        }
        for (const u64 ordinal : gone) drop(ordinal);
    }
    // Forgets all but what other members hold.
    void forget() {
        std::vector<std::pair<u64, u32>> kept;
        known_.each([&](u64 ordinal, u32 value) {
            if (state_of(value) == KeyState::away) kept.emplace_back(ordinal, value & 0xffff);
        });
        clear();
        for (const auto& [ordinal, hash] : kept) set_away(ordinal, hash);
    }
    void clear() {
        known_.clear();
        index_.clear();
        nodes_.clear();
        free_.clear();
        waiting_.clear();
        for (KeySeat& seat : seats_) seat.ready.clear();
    }

    // -- other members ------------------------------------------------------------------------------

    // An entry is held at another member.
    void set_away(u64 ordinal, u32 hash) {
        const u32 value = known_.find(ordinal);
        if (value != OrdinalMap::kNothing) {
            if (state_of(value) != KeyState::waiting) return;
            drop(ordinal);
        }
        HashNode& node = at(hash);
        ++node.away;
        mark(ordinal, hash, KeyState::away);
        list(node);
    }
    // All that are held there, with their hashes in order, two bytes each.
    void set_away(std::span<const Run> runs, std::span<const u8> hashes) {
        forget_away();
        std::size_t at = 0;
        for (const Run& run : runs)
            for (u64 ordinal = run.first; ordinal < run.end; ++ordinal, at += 2) {
                if (at + 2 > hashes.size())
                    throw Error(Code::misuse, "entries of other members without their hashes");
                set_away(ordinal, u32{hashes[at]} | u32{hashes[at + 1]} << 8);
            }
    }
    void forget_away() {
        std::vector<u64> gone;
        known_.each([&](u64 ordinal, u32 value) {
            if (state_of(value) == KeyState::away) gone.push_back(ordinal);
        });
        for (const u64 ordinal : gone) drop(ordinal);
    }
    bool is_away(u64 ordinal) const {
        const u32 value = known_.find(ordinal);
        return value != OrdinalMap::kNothing && state_of(value) == KeyState::away;
    }
    u32 hash_of(u64 ordinal) const {
        const u32 value = known_.find(ordinal);
        return value == OrdinalMap::kNothing ? 0 : value & 0xffff;
    }

    // -- looking ------------------------------------------------------------------------------------

    std::vector<Draining> draining() const {
        std::vector<Draining> found;
        for (const HashNode& node : nodes_)
            if (alive(node) && is_draining(node))
                found.push_back(
                    {node.hash, node.held, node.blocked, node.holder, seat_of(node.hash)});
        std::sort(found.begin(), found.end(),
                  [](const Draining& a, const Draining& b) { return a.hash < b.hash; });
        return found;
    }

    // Calls `visit(ordinal)` for entries that wait for their consumer.
    template <class Visit>
    void each_waiting(Visit visit) const {
        known_.each([&](u64 ordinal, u32 value) {
            if (state_of(value) == KeyState::waiting) visit(ordinal);
        });
    }

    // Drops a range of ordinals.
    void drop(u64 first, u64 end) {
        sweep(known_, first, end, [&](u64 ordinal) { drop(ordinal); });
    }

    // `holder_of(ordinal)`: the slot that holds it, kDelayed while it is delayed, kFree: neither.
    static constexpr Holder kFree = kDelayed - 1;
    template <class HolderOf>
    void check(HolderOf holder_of) const {
        std::map<u32, HashNode> counted;
        known_.each([&](u64 ordinal, u32 value) {
            HashNode& sum = counted[value & 0xffff];
            const KeyState state = state_of(value);
            const Holder holder = holder_of(ordinal);
            const bool in = waiting_.contains(key_of(value & 0xffff, ordinal));
            sum.waiting += in ? 1 : 0;
            sum.away += state == KeyState::away ? 1 : 0;
            sum.held += state == KeyState::held ? 1 : 0;
            if ((state == KeyState::held) != (holder != kFree && holder != kDelayed) ||
                (state == KeyState::delayed) != (holder == kDelayed))
                fail("entry " + std::to_string(ordinal) + " is with another consumer (I260)");
            if (state == KeyState::held) {
                const HashNode* node = find(value & 0xffff);
                if (node == nullptr || (!unordered_ && node->holder != holder))
                    fail("two consumers hold hash " + std::to_string(value & 0xffff) + " (I260)");
            }
            const bool should =
                state == KeyState::waiting || (state == KeyState::delayed && !unordered_);
            if (in != should) fail("an entry waits, and is not in its place (I261)");
        });
        u64 waiting = 0;
        u64 ready = 0;
        for (const HashNode& node : nodes_) {
            if (!alive(node)) continue;
            const HashNode sum = counted[node.hash];
            if (sum.held != node.held || sum.waiting != node.waiting || sum.away != node.away)
                fail("hash " + std::to_string(node.hash) + " is counted wrong (I260)");
            waiting += node.waiting;
            const auto [seat, key] = place(node);
            if (seat != node.seat || (seat != kNoNode && !seats_[seat].ready.contains(key)))
                fail("hash " + std::to_string(node.hash) + " is listed wrong (I262)");
            ready += seat == kNoNode ? 0 : 1;
        }
        for (const KeySeat& seat : seats_) ready -= seat.ready.size();
        if (waiting != waiting_.size() || ready != 0) fail("a hash is listed twice (I262)");
    }

 private:
    static constexpr u64 kOrdinals = (u64{1} << 48) - 1;  // no topic gets that far

    [[noreturn]] static void fail(const std::string& text) { throw Error(Code::corrupt, text); }
    static u64 key_of(u32 hash, u64 ordinal) { return u64{hash} << 48 | ordinal; }
    static KeyState state_of(u32 value) { return static_cast<KeyState>(value >> 16); }
    void mark(u64 ordinal, u32 hash, KeyState state) {
        known_.at(ordinal, 0) = static_cast<u32>(state) << 16 | hash;
    }

    u64 first_waiting(u32 hash) const { return *waiting_.lower_bound(key_of(hash, 0)) & kOrdinals; }

    HashNode* find(u32 hash) {
        const u32 at = index_.find(hash);
        return at == OrdinalMap::kNothing ? nullptr : &nodes_[at];
    }
    const HashNode* find(u32 hash) const {
        const u32 at = index_.find(hash);
        return at == OrdinalMap::kNothing ? nullptr : &nodes_[at];
    }
    HashNode& at(u32 hash) {
        if (HashNode* known = find(hash)) return *known;
        u32 at = static_cast<u32>(nodes_.size());
        if (free_.empty()) {
            nodes_.emplace_back();
        } else {
            at = free_.back();
            free_.pop_back();
        }
        nodes_[at] = {};
        nodes_[at].hash = hash;
        index_.at(hash, at) = at;
        return nodes_[at];
    }
    static bool alive(const HashNode& node) { return node.held + node.away + node.waiting > 0; }

    bool is_draining(const HashNode& node) const {
        if (node.held == 0 || unordered_) return false;
        const u32 seat = seat_of(node.hash);
        return seat == kNoNode || seats_[seat].slot != node.holder;
    }

    void unwait(HashNode& node, u64 ordinal) {
        if (node.waiting > 0 && waiting_.erase(key_of(node.hash, ordinal)) > 0) --node.waiting;
    }
    void leave(HashNode& node, u64 ordinal, KeyState state) {
        if (state == KeyState::held)
            --node.held;
        else if (state == KeyState::away)
            --node.away;
        else
            unwait(node, ordinal);
    }

    // Where a hash is to be listed as ready: the seat (kNoNode: nowhere) and the key.
    std::pair<u32, u64> place(const HashNode& node) const {
        if (node.waiting == 0) return {kNoNode, 0};
        const u32 seat = seat_of(node.hash);
        if (seat == kNoNode) return {kNoNode, 0};
        const bool taken = node.away > 0 || (node.held > 0 && node.holder != seats_[seat].slot);
        if (taken && !unordered_) return {kNoNode, 0};
        const u64 first = first_waiting(node.hash);
        if (state_of(known_.find(first)) != KeyState::waiting) return {kNoNode, 0};
        return {seat, first << 16 | node.hash};
    }
    // Lists a hash where it belongs, or forgets it.
    void list(HashNode& node) {
        if (node.waiting == 0 && node.seat == kNoNode) [[likely]] {
            if (!alive(node)) forget(node);
            return;
        }
        const auto [seat, key] = place(node);
        if (seat == node.seat && key == node.listed) return;
        if (node.seat != kNoNode) seats_[node.seat].ready.erase(node.listed);
        if (seat != kNoNode) seats_[seat].ready.insert(key);
        node.seat = seat;
        node.listed = key;
        if (!alive(node)) forget(node);
    }
    void forget(HashNode& node) {
        const u32 at = static_cast<u32>(&node - nodes_.data());
        index_.erase(node.hash);
        node = {};
        free_.push_back(at);
    }

    void collect(const KeySeat& seat, u64 left, std::vector<u64>& found) const {
        for (const u64 key : seat.ready) {
            const u64 hash = key & 0xffff;
            for (auto each = waiting_.lower_bound(hash << 48);
                 left > 0 && each != waiting_.end() && *each >> 48 == hash; ++each) {
                const u64 ordinal = *each & kOrdinals;
                if (state_of(known_.find(ordinal)) != KeyState::waiting) break;
                found.push_back(ordinal);
                --left;
            }
            if (left == 0) return;
        }
    }

    bool unordered_;
    KeySplit split_;
    std::vector<KeySeat> seats_;
    OrdinalMap known_;             // ordinal -> state << 16 | hash
    OrdinalMap index_;             // hash -> place in nodes_
    std::vector<HashNode> nodes_;  // of hashes with known entries, and free ones
    std::vector<u32> free_;
    std::set<u64> waiting_;  // hash << 48 | ordinal, also of delayed entries
    std::size_t turn_ = 0;
};

}  // namespace holdfast
