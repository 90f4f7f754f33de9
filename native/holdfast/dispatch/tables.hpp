// The dispatcher's tables: the permits of each consumer, the entries that it holds, and those to be
// read again. One call dispatches a run of entries. The caller passes the time, the acknowledged
// entries of a run, and the ordinals that an acknowledgement covers.
//
//            hand()                   redeliver(), remove(), expire()
//   read ──────────────▶ pending ───────────────────────────────────▶ replay ──▶ take_replay(), read, hand()
//     ├─ no permits ─▶ replay  └─ nack() ─▶ delayed ── take_due() ─────▲
//     └─ delivery time not reached ─▶ schedule ── take_scheduled() ────┘
//   release(): from any state, for good
//
// The entries to be read again lie below the read position (I266): what lies above it is read in its
// turn. In a Key_Shared subscription, entries whose hash is known wait in keys.hpp instead.
//
// Invariants (docs/internals/dispatch.md): I50 permits, I51 one holder, I52 counts, I53 order of choice,
// I271 delivery times.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/dispatch/chunks.hpp"
#include "holdfast/dispatch/handed.hpp"
#include "holdfast/dispatch/keys.hpp"
#include "holdfast/dispatch/schedule.hpp"
#include "holdfast/dispatch/undelivered.hpp"

namespace holdfast {

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
        if (mode != DispatchMode::keyed) keys_.reset();
        if (mode == DispatchMode::single) schedule_.clear();  // in order, so all is due
    }
    // Begins Key_Shared, before the first consumer joins.
    void set_keyed(bool unordered) {
        set_mode(DispatchMode::keyed);
        if (keys_ == nullptr || keys_->unordered() != unordered)
            keys_ = std::make_unique<KeyTable>(unordered);
    }
    const KeyTable* keys() const { return keys_.get(); }
    KeyTable* keys() { return keys_.get(); }
    // Gives the hashes of keys to consumers. A seat without a slot is a consumer elsewhere.
    void assign(std::vector<KeyRange> ranges, std::vector<KeySeat> seats) {
        if (keys_ == nullptr) return;
        for (KeySeat& seat : seats) {
            const auto found = slots_.find(seat.consumer);
            seat.slot = found == slots_.end() ? kNoNode : found->second;
        }
        keys_->assign(std::move(ranges), std::move(seats));
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

    // The entries that it held are to be read again; unless `counted`, as if it had not got them.
    u64 remove(u64 id, bool counted = true) {
        const u64 moved = redeliver_all(id, counted);
        const u32 slot = slot_of(id);
        order_.erase(std::find(order_.begin(), order_.end(), slot));
        slots_.erase(id);
        const int level = consumers_[slot].priority;
        if (std::none_of(order_.begin(), order_.end(),
                         [&](u32 other) { return consumers_[other].priority == level; }))
            served_.erase(level);  // else one entry for each id that any consumer ever had stays
        consumers_[slot] = {};
        if (keys_ != nullptr) keys_->unseat(slot);
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

    // The same in entries, by their recent size; more while most entries, not due, use no permits.
    u64 wanted_entries() const {
        const u64 messages = wanted();
        if (messages == 0) return 0;
        return std::max<u64>(std::max<u64>(1, look_ahead_),
                             static_cast<u64>(static_cast<double>(messages) / per_entry_));
    }

    // A consumer that holds that many unacknowledged messages gets no more; 0: no limit.
    void set_unacked_max(u64 messages) { unacked_max_ = messages; }
    u64 unacked_max() const { return unacked_max_; }
    // The same for all consumers together.
    void set_held_max(u64 messages) { held_max_ = messages; }
    u64 held_max() const { return held_max_; }
    u64 held_messages() const { return pending_.held_messages(); }

    // -- handing out --------------------------------------------------------------------------------

    // Dispatches entries [0, count) of a run from ordinal `first` on, without `skip` (in order).
    // `only` (in order; null: all): the wanted ones. Entries without a permit are to be read again;
    // early ones wait in the schedule. Gaps have no messages. `hash_of` an index: of its key.
    template <class Messages, class HashOf, class Times = NoTimes>
    std::vector<Handed> hand(u64 first, u32 count, Messages messages, HashOf hash_of,
                             std::span<const Run> skip, std::span<const LeftOfBatch> left,
                             const std::vector<Run>* only, u64 now_ns, const Times& times = {}) {
        std::vector<Handed> out;
        u32 early = 0;
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
            if ((skipping < skip.size() && skip[skipping].first <= ordinal) || messages(i) == 0 ||
                pending_.contains(ordinal)) {
                if (keys_ != nullptr) keys_->filtered(ordinal);
                ++filtered_;
                continue;
            }
            if (const i64 at_ms = times.at_ms(i);
                at_ms > times.now_ms && mode_ != DispatchMode::single) {
                if (keys_ != nullptr)
                    keys_->filtered(ordinal);  // it holds up no later one of its key
                schedule_.insert(ordinal, at_ms);
                replay_.erase(ordinal, ordinal + 1);
                ++early;
                continue;
            }
            if (!schedule_.empty()) schedule_.erase(ordinal, ordinal + 1);
            u32 hash = 0;
            if (keys_ != nullptr) {
                hash = hash_of(i);
                chosen = admit(hash, ordinal);
            } else if (chosen == kNoNode || turn == turn_entries_ ||
                       !may_take(consumers_[chosen])) {
                chosen = choose();
                turn = 0;
            }
            if (chosen == kNoNode) {
                if (keys_ == nullptr) replay_.insert(ordinal, ordinal + 1);
                continue;
            }
            while (part < left.size() && left[part].ordinal < ordinal) ++part;
            u32 size = messages(i);
            if (part < left.size() && left[part].ordinal == ordinal)
                size = std::min(size, std::max<u32>(1, left[part].messages));
            u32 taker = chosen;
            if constexpr (requires { times.part(i); })
                if (mode_ == DispatchMode::shared && times.part(i) != ChunkPart::none)
                    taker = chunks_.taker(hash_of(i), times.part(i), chosen, consumers_, slots_,
                                          [&](u32 slot) { return may_take(consumers_[slot]); });
            give(out, place, taker, i, ordinal, size, std::max<u64>(1, now_ns));
            if (keys_ != nullptr) keys_->hold(hash, ordinal, chosen);
            ++turn;
        }
        for (const Handed& each : out) {
            const double size =
                static_cast<double>(each.messages) / static_cast<double>(each.indices.size());
            per_entry_ += (size - per_entry_) / 4;
        }
        look_ahead_ = 2 * early > count ? std::min<u64>(2 * u64{count}, kLookAheadMax) : 0;
        return out;
    }

    // -- giving back --------------------------------------------------------------------------------

    // All entries that a consumer holds are to be read again, and count as delivered once more.
    u64 redeliver_all(u64 id, bool counted = true) {
        PendingList& list = consumers_[slot_of(id)].pending;
        u64 moved = 0;
        while (const PendingNode* node = pending_.head(list)) {
            again(list, node->ordinal, counted);
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
            if (delay_ns == 0) {
                read_again(ordinal);
            } else {
                pending_.delay(ordinal, messages, now_ns + std::min(delay_ns, ~u64{0} - now_ns));
                if (keys_ != nullptr) keys_->give_back(ordinal, KeyState::delayed);
            }
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
            read_again(ordinal);
            ++moved;
        });
        return moved;
    }
    u64 next_due() { return pending_.next_due(); }

    // -- delivery times -----------------------------------------------------------------------------

    // Entries whose delivery time has come are to be read: the first ones, at most so many.
    u64 take_scheduled(i64 now_ms, u64 most = ~u64{0}) {
        return schedule_.take_due(
            now_ms, [&](u64 ordinal) { replay_.insert(ordinal, below(ordinal + 1)); }, most);
    }
    // The delivery time that comes next, in ms since the epoch; the largest number: none.
    i64 next_scheduled() {
        return schedule_.empty() ? std::numeric_limits<i64>::max() : schedule_.next_due();
    }
    const Schedule& schedule() const { return schedule_; }

    // -- replay -------------------------------------------------------------------------------------

    std::vector<Run> take_replay(u64 count_max, u64 gap_max) {
        if (keys_ == nullptr || !replay_.empty()) return replay_.take(count_max, gap_max);
        return keys_->take(count_max, gap_max, [&](u32 slot) {
            const DispatchConsumer& each = consumers_[slot];
            if (!may_take(each)) return u64{0};
            const double entries = static_cast<double>(each.permits) / per_entry_;
            return std::max<u64>(1, static_cast<u64>(entries));
        });
    }
    void put_back(std::span<const Run> runs) {
        const bool all = keys_ == nullptr || halted_;
        for (const Run& run : runs) {
            if (all && schedule_.empty()) replay_.insert(run.first, below(run.end));
            if (all && schedule_.empty()) continue;
            for (u64 ordinal = run.first; ordinal < below(run.end); ++ordinal)
                if ((all || !keys_->knows(ordinal)) && !schedule_.contains(ordinal))
                    replay_.insert(ordinal, ordinal + 1);
        }
    }
    const RunSet& replay() const { return replay_; }
    // Whether there are entries to read again now. Those whose hash is with another consumer wait.
    bool to_replay() const {
        if (!replay_.empty()) return true;
        return keys_ != nullptr &&
               keys_->any_ready([&](u32 slot) { return may_take(consumers_[slot]); });
    }
    u64 replay_first() const {
        if (!replay_.empty()) return replay_.first();
        if (keys_ == nullptr) return ~u64{0};
        return keys_->first_ready([&](u32 slot) { return may_take(consumers_[slot]); });
    }
    // Entries to be read again, now or later.
    u64 replay_entries() const {
        const u64 delayed = keys_ == nullptr || keys_->unordered() ? 0 : delayed_entries();
        return replay_.size() + (keys_ == nullptr ? 0 : keys_->waiting() - delayed);
    }
    // How many more entries may be read while others wait for their consumers.
    void set_ahead_max(u64 entries) { ahead_max_ = entries; }
    u64 ahead_left() const {
        if (keys_ == nullptr) return ~u64{0};
        return ahead_max_ - std::min(ahead_max_, keys_->waiting());
    }

    // The next sequential read begins there. Entries above it are read in their turn (I266).
    void set_position(u64 position) {
        if (position < position_) {
            if (!halted_) replay_.erase(position, ~u64{0});
            if (keys_ != nullptr) keys_->unread(position);
        }
        position_ = position;
    }
    u64 position() const { return position_; }
    // While another member dispatches, what comes back here is for that one.
    void set_halted(bool halted) {
        halted_ = halted;
        replay_.clear();
        if (keys_ == nullptr) return;
        keys_->forget_away();
        keys_->unread(0);
    }
    // Entries that consumers of other members hold, with their hashes in order.
    void set_away(std::span<const Run> runs, std::span<const u8> hashes) {
        if (keys_ != nullptr) keys_->set_away(runs, hashes);
    }
    // They are free again.
    void come_back(std::span<const Run> runs) {
        for (const Run& run : runs) {
            if (keys_ != nullptr) keys_->drop(run.first, run.end);
            if (!schedule_.empty())
                schedule_.erase(run.first, run.end);  // noted in an earlier turn
            replay_.insert(run.first, below(run.end));
        }
    }

    // -- acknowledgement and change of position -------------------------------------------------------

    // Removes acknowledged entries for good. Returns how many were held.
    u64 release(u64 first, u64 end) {
        replay_.erase(first, end);
        if (!schedule_.empty()) schedule_.erase(first, end);
        u64 released = 0;
        sweep(pending_, first, end, [&](u64 ordinal) { released += let_go(ordinal) ? 1 : 0; });
        sweep(counts_, first, end, [&](u64 ordinal) { counts_.erase(ordinal); });
        if (keys_ != nullptr) keys_->drop(first, end);
        return released;
    }

    // A batch with that many messages left to acknowledge.
    void shrink(u64 ordinal, u32 messages) {
        if (const PendingNode* node = pending_.find(ordinal))
            pending_.shrink(list_of(node->holder), ordinal, messages);
    }

    // All entries are to be read again from some position. Held ones count as delivered once more.
    void rewind() {
        pending_.each([&](const PendingNode& node) {
            if (node.holder != kDelayed) count_up(counts_.at(node.ordinal, 0));
        });
        forget_holders();
        if (keys_ != nullptr) keys_->forget();
    }

    // A reset to `target`: as if no entry from there on had been delivered. The schedule stays.
    void reset(u64 target) {
        forget_holders();
        schedule_.erase(0, target);
        if (keys_ != nullptr) keys_->clear();
        counts_.clear();
        undelivered_.insert(target, reach_);
        undelivered_.erase(0, target);
    }
    Undelivered& undelivered() { return undelivered_; }
    const Undelivered& undelivered() const { return undelivered_; }

    // -- looking --------------------------------------------------------------------------------------

    // The entries that consumers hold, and those that wait for their time, in order.
    std::vector<Run> held() const;
    // Ordinals with their numbers of earlier deliveries: the lowest `most` ordinals.
    std::vector<std::pair<u64, u32>> counts(u64 most) const;
    u64 reach() const { return reach_; }  // the end of what was ever handed out
    // The first ordinal from here on that no consumer holds, and that does not wait for its time.
    u64 next_free(u64 ordinal) const;

    u64 pending_entries() const { return pending_.size() - pending_.delayed().entries; }
    u64 delayed_entries() const { return pending_.delayed().entries; }
    u64 counted_entries() const { return counts_.size(); }
    u64 counts_risen() const { return risen_; }  // how often a count rose
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

    u64 id_in(u32 slot) const { return consumers_[slot].id; }
    // Whether a consumer may be sent something now.
    bool may_take_of(u64 id) const { return may_take(consumers_[slot_of(id)]); }

    // Throws if an invariant does not hold.
    void check() const;

 private:
    static constexpr u64 kLookAheadMax = 4096;

    void require_unscheduled(u64 ordinal) const;
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
               (unacked_max_ == 0 || each.pending.messages < unacked_max_) &&
               (held_max_ == 0 || pending_.held_messages() < held_max_);
    }

    // The consumer of a key, if it may take this entry now; else the entry waits.
    u32 admit(u32 hash, u64 ordinal) {
        // An entry below, whose hash is not known yet, may have the same one.
        const bool known = replay_.empty() || ordinal < replay_.first();
        const u32 slot = keys_->admit(hash, ordinal);
        if (slot != kNoNode && may_take(consumers_[slot]) && (known || keys_->unordered()))
            return slot;
        keys_->wait(hash, ordinal);
        replay_.erase(ordinal, ordinal + 1);
        return kNoNode;
    }

    u32 choose() {
        const auto willing = [&](u32 slot) { return may_take(consumers_[slot]); };
        if (mode_ == DispatchMode::shared)
            return next_in_turn(consumers_, order_, served_, willing);
        return !order_.empty() && willing(order_.front()) ? order_.front() : kNoNode;
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
        undelivered_.erase(ordinal, ordinal + 1);
        if (place[slot] == kNoNode) {
            place[slot] = static_cast<u32>(out.size());
            out.push_back({to.id, {}, {}, 0});
        }
        Handed& handed = out[place[slot]];
        handed.indices.push_back(index);
        handed.counts.push_back(count);
        handed.messages += messages;
    }

    // One that is returned at once, again and again, wraps 32 bits in days: it would count as new.
    void count_up(u32& count) {
        ++risen_;
        count += count < kRedeliveriesMax ? 1 : 0;
    }

    void again(PendingList& list, u64 ordinal, bool counted = true) {
        pending_.remove(list, ordinal);
        if (counted) count_up(counts_.at(ordinal, 0));
        read_again(ordinal);
    }

    u64 below(u64 end) const { return halted_ ? end : std::min(end, position_); }

    void read_again(u64 ordinal) {
        if (keys_ != nullptr && !halted_ && ordinal < position_ &&
            keys_->give_back(ordinal, KeyState::waiting))
            return;
        if (keys_ != nullptr) keys_->drop(ordinal);
        replay_.insert(ordinal, below(ordinal + 1));
    }

    bool let_go(u64 ordinal) {
        const PendingNode* node = pending_.find(ordinal);
        if (node == nullptr) return false;
        const Holder holder = node->holder;
        pending_.remove(list_of(holder), ordinal);
        if (keys_ != nullptr && keys_->drop(ordinal) && holder != kDelayed)
            ++consumers_[holder].drained;
        return holder != kDelayed;
    }

    void forget_holders() {
        pending_.clear(), replay_.clear();
        for (DispatchConsumer& each : consumers_) each.pending = {};
    }

    DispatchMode mode_;
    u32 turn_entries_;  // of one consumer before the next one's turn
    u64 unacked_max_ = 0;
    u64 held_max_ = 0;
    u64 last_id_ = 0;
    std::vector<DispatchConsumer> consumers_;  // by slot; id 0: free
    std::unordered_map<u64, u32> slots_;       // id -> slot
    std::vector<u32> order_;                   // slots by (priority, id)
    std::map<int, u64> served_;                // priority -> id last served
    ChunkHolders chunks_;
    PendingTable pending_;
    OrdinalMap counts_;   // ordinal -> earlier deliveries, where there were any
    RunSet replay_;       // to be read again; of a Key_Shared subscription: with unknown hashes
    Schedule schedule_;   // their delivery time has not come
    u64 look_ahead_ = 0;  // entries of the next read, while most are not due
    std::unique_ptr<KeyTable> keys_;  // of a Key_Shared subscription
    u64 ahead_max_ = ~u64{0};
    u64 position_ = ~u64{0};
    bool halted_ = false;
    Undelivered undelivered_;  // since a backward reset
    u64 reach_ = 0;            // the end of what was ever handed out
    u64 filtered_ = 0, risen_ = 0;
    double per_entry_ = 1.0;  // messages, smoothed
};

}  // namespace holdfast

#include "holdfast/dispatch/looking.hpp"
