// The dispatcher's tables: the permits of each consumer, the entries that it holds, and the entries
// to be read again. One call dispatches a run of entries. The tables know no clock, ledger or
// acknowledgement state. The caller passes the time, the acknowledged entries of a run, and the
// ordinals that an acknowledgement covers.
//
//            hand()                   redeliver(), remove(), expire()
//   read ──────────────▶ pending ───────────────────────────────────▶ replay ──▶ take_replay(), read, hand()
//     └─ no permits ─▶ replay  └─ nack() ─▶ delayed ── take_due() ─────▲
//   release(): from any state, for good
//
// Invariants (docs/internals/dispatch.md): I50 permits, I51 one holder, I52 counts, I53 order of choice.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/dispatch/pending.hpp"
#include "holdfast/dispatch/runs.hpp"

namespace holdfast {

enum class DispatchMode : u8 { single, shared };  // single: Exclusive and Failover

inline constexpr u64 kPermitsMax = (u64{1} << 31) - 1;             // as the protocol counts them
inline constexpr u32 kRedeliveriesMax = OrdinalMap::kNothing - 1;  // the count stops there

struct DispatchConsumer {
    u64 id = 0;  // rises with every consumer that attaches: the order of attaching
    int priority = 0;
    std::int64_t permits = 0;  // below zero by less than one entry's messages (I50)
    bool paused = false;       // gets nothing, even with permits
    PendingList pending;
    u64 delivered_entries = 0;
    u64 delivered_messages = 0;
    u64 redelivered_entries = 0;
    u64 last_ns = 0;  // time of its last delivery
};

// The part of one run that one consumer gets.
struct Handed {
    u64 consumer;
    std::vector<u32> indices;  // indexes in the run, rising
    std::vector<u32> counts;   // of earlier deliveries, per index
    u64 messages = 0;
};

// A batch of which some messages are acknowledged: the number left.
struct LeftOfBatch {
    u64 ordinal;
    u32 messages;
};

struct BackOff {
    u64 first_ns = 0;
    double factor = 1.0;
    u64 most_ns = 0;

    // Without a first delay there is no delay. 0 times a factor that has grown to infinity is not a
    // number.
    u64 delay_ns(u32 count) const {
        if (first_ns == 0) return 0;
        const double grown = static_cast<double>(first_ns) * std::pow(factor, count);
        return grown >= static_cast<double>(most_ns) ? most_ns : static_cast<u64>(grown);
    }
};

class Dispatch {
 public:
    explicit Dispatch(DispatchMode mode = DispatchMode::shared, u32 turn_entries = 20)
        : mode_(mode), turn_entries_(std::max(1u, turn_entries)) {}

    DispatchMode mode() const { return mode_; }
    void set_mode(DispatchMode mode) {
        if (!order_.empty() && mode != mode_)
            throw Error(Code::misuse,
                        "the type of a subscription cannot change while it has consumers");
        mode_ = mode;
    }

    // -- consumers ----------------------------------------------------------------------------------

    u64 add(int priority) {
        u32 slot = 0;
        while (slot < consumers_.size() && consumers_[slot].id != 0) ++slot;
        if (slot == consumers_.size()) consumers_.emplace_back();
        consumers_[slot] = {};
        consumers_[slot].id = ++last_id_;
        consumers_[slot].priority = priority;
        slots_[last_id_] = slot;
        const auto place = std::upper_bound(
            order_.begin(), order_.end(), priority,
            [&](int value, u32 other) { return value < consumers_[other].priority; });
        order_.insert(place, slot);
        return last_id_;
    }

    // The entries that it held are to be read again. Returns their number.
    u64 remove(u64 id) {
        const u64 moved = redeliver_all(id);
        const u32 slot = slot_of(id);
        order_.erase(std::find(order_.begin(), order_.end(), slot));
        slots_.erase(id);
        const int level = consumers_[slot].priority;
        if (std::none_of(order_.begin(), order_.end(),
                         [&](u32 other) { return consumers_[other].priority == level; }))
            served_.erase(level);  // else one entry for each id that any consumer ever had stays
        consumers_[slot] = {};
        return moved;
    }

    void flow(u64 id, u64 permits) {
        std::int64_t& sum = consumers_[slot_of(id)].permits;
        sum = std::min(sum + static_cast<std::int64_t>(std::min(permits, kPermitsMax)),
                       static_cast<std::int64_t>(kPermitsMax));
    }

    // Replaces all permits: the consumer has dropped the entries that it got for the old ones.
    void grant(u64 id, u64 permits) {
        consumers_[slot_of(id)].permits = static_cast<std::int64_t>(std::min(permits, kPermitsMax));
    }

    // Its entries are delivered again: those beyond its permits do not count any more.
    void forgive(u64 id) {
        std::int64_t& permits = consumers_[slot_of(id)].permits;
        permits = std::max<std::int64_t>(permits, 0);
    }

    // While paused, it keeps its permits and gets nothing.
    void pause(u64 id, bool paused) { consumers_[slot_of(id)].paused = paused; }

    u64 levels() const { return served_.size(); }  // priorities whose last turn is kept
    const DispatchConsumer& consumer(u64 id) const { return consumers_[slot_of(id)]; }
    u64 consumers() const { return order_.size(); }
    // In the order of choice: best priority first, then the order of attaching (I53).
    std::vector<u64> ids() const {
        std::vector<u64> all;
        for (const u32 slot : order_) all.push_back(consumers_[slot].id);
        return all;
    }
    // The consumer that is served where only one is; 0: no consumer.
    u64 active() const { return order_.empty() ? 0 : consumers_[order_.front()].id; }

    // The number of messages that may be delivered now.
    u64 wanted() const {
        u64 sum = 0;
        for (const u32 slot : order_) {
            const DispatchConsumer& each = consumers_[slot];
            if (may_take(each)) sum += static_cast<u64>(each.permits);
            if (mode_ == DispatchMode::single) break;
        }
        return sum;
    }

    // The same in entries, by the recent number of messages per entry.
    u64 wanted_entries() const {
        const u64 messages = wanted();
        if (messages == 0) return 0;
        return std::max<u64>(1, static_cast<u64>(static_cast<double>(messages) / per_entry_));
    }

    // A consumer that holds that many unacknowledged messages gets no more; 0: no limit.
    void set_unacked_max(u64 messages) { unacked_max_ = messages; }
    u64 unacked_max() const { return unacked_max_; }

    // -- handing out --------------------------------------------------------------------------------

    // Dispatches entries [0, count) of a run whose first ordinal is `first`. `skip` (in order):
    // acknowledged. `only` (in order; null: all): the wanted ordinals; the rest of the run lies
    // between them. Entries without a permit are to be read again.
    template <class Messages>
    std::vector<Handed> hand(u64 first, u32 count, Messages messages, std::span<const Run> skip,
                             std::span<const LeftOfBatch> left, const std::vector<Run>* only,
                             u64 now_ns) {
        std::vector<Handed> out;
        std::vector<u32> place(consumers_.size(), kNoNode);  // index of each consumer in `out`
        u32 chosen = kNoNode;
        u32 turn = 0;
        std::size_t skipping = 0;
        std::size_t asked = 0;
        std::size_t part = 0;
        for (u32 i = 0; i < count; ++i) {
            const u64 ordinal = first + i;
            if (only != nullptr) {
                while (asked < only->size() && (*only)[asked].end <= ordinal) ++asked;
                if (asked == only->size()) break;
                if (ordinal < (*only)[asked].first) continue;
            }
            while (skipping < skip.size() && skip[skipping].end <= ordinal) ++skipping;
            if ((skipping < skip.size() && skip[skipping].first <= ordinal) ||
                pending_.contains(ordinal)) {
                ++filtered_;
                continue;
            }
            if (chosen == kNoNode || turn == turn_entries_ || !may_take(consumers_[chosen])) {
                chosen = choose();
                turn = 0;
            }
            if (chosen == kNoNode) {
                replay_.insert(ordinal, ordinal + 1);
                continue;
            }
            while (part < left.size() && left[part].ordinal < ordinal) ++part;
            u32 size = std::max<u32>(1, messages(i));
            if (part < left.size() && left[part].ordinal == ordinal)
                size = std::min(size, std::max<u32>(1, left[part].messages));
            give(out, place, chosen, i, ordinal, size, std::max<u64>(1, now_ns));
            ++turn;
        }
        for (const Handed& each : out) {
            const double size =
                static_cast<double>(each.messages) / static_cast<double>(each.indices.size());
            per_entry_ += (size - per_entry_) / 4;
        }
        return out;
    }

    // -- giving back --------------------------------------------------------------------------------

    // All entries that a consumer holds are to be read again, and count as delivered once more.
    u64 redeliver_all(u64 id) {
        PendingList& list = consumers_[slot_of(id)].pending;
        u64 moved = 0;
        while (const PendingNode* node = pending_.head(list)) {
            again(list, node->ordinal);
            ++moved;
        }
        return moved;
    }

    // The same for those of `ordinals` that this consumer holds.
    u64 redeliver(u64 id, std::span<const u64> ordinals) {
        const u32 slot = slot_of(id);
        u64 moved = 0;
        for (const u64 ordinal : ordinals) {
            const PendingNode* node = pending_.find(ordinal);
            if (node == nullptr || node->holder != slot) continue;
            again(consumers_[slot].pending, ordinal);
            ++moved;
        }
        return moved;
    }

    // As redeliver, each after a delay that grows with its number of deliveries.
    u64 nack(u64 id, std::span<const u64> ordinals, const BackOff& back_off, u64 now_ns) {
        const u32 slot = slot_of(id);
        u64 moved = 0;
        for (const u64 ordinal : ordinals) {
            const PendingNode* node = pending_.find(ordinal);
            if (node == nullptr || node->holder != slot) continue;
            const u32 messages = node->messages;
            u32& count = counts_.at(ordinal, 0);
            const u64 delay_ns = back_off.delay_ns(count);
            count_up(count);
            pending_.remove(consumers_[slot].pending, ordinal);
            if (delay_ns == 0)
                replay_.insert(ordinal, ordinal + 1);
            else
                pending_.delay(ordinal, messages, now_ns + std::min(delay_ns, ~u64{0} - now_ns));
            ++moved;
        }
        return moved;
    }

    // Entries that the consumer got at `before_ns` or earlier and still holds are to be read again.
    u64 expire(u64 id, u64 before_ns) {
        PendingList& list = consumers_[slot_of(id)].pending;
        u64 moved = 0;
        for (const PendingNode* node = pending_.head(list);
             node != nullptr && node->time_ns <= before_ns; node = pending_.head(list)) {
            again(list, node->ordinal);
            ++moved;
        }
        return moved;
    }
    // The time at which the consumer got the entry that it has held longest; 0: it holds nothing.
    u64 oldest_ns(u64 id) const {
        const PendingNode* node = pending_.head(consumers_[slot_of(id)].pending);
        return node == nullptr ? 0 : node->time_ns;
    }

    u64 take_due(u64 now_ns) {
        u64 moved = 0;
        pending_.take_due(now_ns, [&](u64 ordinal) {
            replay_.insert(ordinal, ordinal + 1);
            ++moved;
        });
        return moved;
    }
    u64 next_due() { return pending_.next_due(); }

    // -- replay -------------------------------------------------------------------------------------

    std::vector<Run> take_replay(u64 count_max, u64 gap_max) {
        return replay_.take(count_max, gap_max);
    }
    void put_back(std::span<const Run> runs) {
        for (const Run& run : runs) replay_.insert(run.first, run.end);
    }
    const RunSet& replay() const { return replay_; }

    // -- acknowledgement and change of position -------------------------------------------------------

    // Removes acknowledged entries for good. Returns how many were held.
    u64 release(u64 first, u64 end) {
        replay_.erase(first, end);
        u64 released = 0;
        sweep(pending_, first, end, [&](u64 ordinal) { released += let_go(ordinal) ? 1 : 0; });
        sweep(counts_, first, end, [&](u64 ordinal) { counts_.erase(ordinal); });
        return released;
    }

    // A batch with that many messages left to acknowledge.
    void shrink(u64 ordinal, u32 messages) {
        if (const PendingNode* node = pending_.find(ordinal))
            pending_.shrink(list_of(node->holder), ordinal, messages);
    }

    // All entries are to be read again from some position. Held entries count as delivered once
    // more.
    void rewind() {
        pending_.each([&](const PendingNode& node) {
            if (node.holder != kDelayed) count_up(counts_.at(node.ordinal, 0));
        });
        forget_holders();
    }

    // A reset to `target`: as if no entry from there on had ever been delivered.
    void reset(u64 target) {
        forget_holders();
        counts_.clear();
        undelivered_.insert(target, reach_);
        undelivered_.erase(0, target);
    }

    // Notes a reset behind which [first, end) may have been delivered before: by an earlier
    // life of the broker, by another owner, or here. Until it is delivered again it counts as
    // delivered before the reset only.
    void expect(u64 first, u64 end) { undelivered_.insert(first, end); }

    // True if it was delivered before a backward reset, and not since. Then an acknowledgement of
    // it is outdated.
    bool undelivered(u64 ordinal) const { return undelivered_.contains(ordinal); }
    const RunSet& undelivered() const { return undelivered_; }
    // `kept` gets the parts of `runs` (which do not touch) that were delivered since. Returns how
    // many were not.
    u64 without_undelivered(std::span<const Run> runs, std::vector<Run>& kept) const {
        RunSet left;
        u64 before = 0;
        for (const Run& run : runs) {
            left.insert(run.first, run.end);
            before += run.end - run.first;
        }
        for (const Run& run : undelivered_.list()) left.erase(run.first, run.end);
        kept = left.list();
        return before - left.size();
    }

    // -- looking --------------------------------------------------------------------------------------

    u64 pending_entries() const { return pending_.size() - pending_.delayed().entries; }
    u64 delayed_entries() const { return pending_.delayed().entries; }
    u64 counted_entries() const { return counts_.size(); }
    u64 filtered_entries() const { return filtered_; }
    u32 count_of(u64 ordinal) const {
        const u32 count = counts_.find(ordinal);
        return count == OrdinalMap::kNothing ? 0 : count;
    }
    // For tests, which start just before the end of a counter.
    void set_count(u64 ordinal, u32 count) { counts_.at(ordinal, 0) = count; }
    u64 holder_of(u64 ordinal) const {
        const PendingNode* node = pending_.find(ordinal);
        return node == nullptr || node->holder == kDelayed ? 0 : consumers_[node->holder].id;
    }

    // Throws if an invariant does not hold.
    void check() const {
        u64 held = pending_.delayed().entries;
        for (const u32 slot : order_) {
            const DispatchConsumer& each = consumers_[slot];
            if (!pending_.sound(each.pending, slot))
                throw Error(Code::corrupt, "the list of consumer " + std::to_string(each.id) +
                                               " does not agree with the pending table (I51)");
            held += each.pending.entries;
        }
        if (held != pending_.size() || !pending_.sound())
            throw Error(Code::corrupt, "an entry has no holder, or two (I51)");
        if (!replay_.sound() || !undelivered_.sound() || !counts_.sound())
            throw Error(Code::corrupt, "a set of the dispatcher is not sound");
        for (const Run& run : replay_.list())
            for (u64 ordinal = run.first; ordinal < run.end; ++ordinal)
                if (pending_.contains(ordinal))
                    throw Error(Code::corrupt, "entry " + std::to_string(ordinal) +
                                                   " is held and waits to be read again (I51)");
    }

 private:
    u32 slot_of(u64 id) const {
        const auto found = slots_.find(id);
        if (found == slots_.end())
            throw Error(Code::misuse, "the subscription has no consumer " + std::to_string(id));
        return found->second;
    }
    PendingList& list_of(Holder holder) {
        return holder == kDelayed ? pending_.delayed() : consumers_[holder].pending;
    }

    bool may_take(const DispatchConsumer& each) const {
        return !each.paused && each.permits > 0 &&
               (unacked_max_ == 0 || each.pending.messages < unacked_max_);
    }

    // The next consumer to serve: in the best level with permits, the one after the last that was
    // served.
    u32 choose() {
        if (mode_ == DispatchMode::single)
            return !order_.empty() && may_take(consumers_[order_.front()]) ? order_.front()
                                                                           : kNoNode;
        for (std::size_t begin = 0; begin < order_.size();) {
            const int level = consumers_[order_[begin]].priority;
            u64& last = served_[level];
            u32 first = kNoNode;
            u32 next = kNoNode;
            std::size_t at = begin;
            for (; at < order_.size() && consumers_[order_[at]].priority == level; ++at) {
                const DispatchConsumer& each = consumers_[order_[at]];
                if (!may_take(each)) continue;
                if (first == kNoNode) first = order_[at];
                if (next == kNoNode && each.id > last) next = order_[at];
            }
            const u32 chosen = next != kNoNode ? next : first;
            if (chosen != kNoNode) {
                last = consumers_[chosen].id;
                return chosen;
            }
            begin = at;
        }
        return kNoNode;
    }

    void give(std::vector<Handed>& out, std::vector<u32>& place, u32 slot, u32 index, u64 ordinal,
              u32 messages, u64 now_ns) {
        DispatchConsumer& to = consumers_[slot];
        const u32 count = count_of(ordinal);
        to.permits -= messages;
        ++to.delivered_entries;
        to.delivered_messages += messages;
        to.redelivered_entries += count > 0 ? 1 : 0;
        to.last_ns = now_ns;
        pending_.add(to.pending, slot, ordinal, messages, now_ns);
        reach_ = std::max(reach_, ordinal + 1);
        replay_.erase(ordinal, ordinal + 1);  // a reset and an old read may both name it
        if (!undelivered_.empty()) undelivered_.erase(ordinal, ordinal + 1);
        if (place[slot] == kNoNode) {
            place[slot] = static_cast<u32>(out.size());
            out.push_back({to.id, {}, {}, 0});
        }
        Handed& handed = out[place[slot]];
        handed.indices.push_back(index);
        handed.counts.push_back(count);
        handed.messages += messages;
    }

    // A message that is returned at once, again and again, wraps 32 bits in days; it would count as
    // new.
    static void count_up(u32& count) { count += count < kRedeliveriesMax ? 1 : 0; }

    void again(PendingList& list, u64 ordinal) {
        pending_.remove(list, ordinal);
        count_up(counts_.at(ordinal, 0));
        replay_.insert(ordinal, ordinal + 1);
    }

    bool let_go(u64 ordinal) {
        const PendingNode* node = pending_.find(ordinal);
        if (node == nullptr) return false;
        const Holder holder = node->holder;
        pending_.remove(list_of(holder), ordinal);
        return holder != kDelayed;
    }

    // Visits each ordinal of a range, or each of the table that lies in it, whichever is less.
    template <class Table, class Visit>
    static void sweep(const Table& table, u64 first, u64 end, Visit visit) {
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

    void forget_holders() {
        pending_.clear();
        replay_.clear();
        for (DispatchConsumer& each : consumers_) each.pending = {};
    }

    DispatchMode mode_;
    u32 turn_entries_;  // of one consumer before the next one's turn
    u64 unacked_max_ = 0;
    u64 last_id_ = 0;
    std::vector<DispatchConsumer> consumers_;  // by slot; id 0: free
    std::unordered_map<u64, u32> slots_;       // id -> slot
    std::vector<u32> order_;                   // slots by (priority, id)
    std::map<int, u64> served_;                // priority -> id last served
    PendingTable pending_;
    OrdinalMap counts_;   // ordinal -> earlier deliveries, where there were any
    RunSet replay_;       // to be read again
    RunSet undelivered_;  // since a backward reset; see `undelivered`
    u64 reach_ = 0;       // the end of what was ever handed out
    u64 filtered_ = 0;
    double per_entry_ = 1.0;  // messages, smoothed
};

}  // namespace holdfast
