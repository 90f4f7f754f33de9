// A consumer in the dispatcher's tables (tables.hpp), and the entries that it gets.
#pragma once

#include <cmath>
#include <map>
#include <vector>

#include "holdfast/dispatch/pending.hpp"

namespace holdfast {

enum class DispatchMode : u8 { single, shared, keyed };  // single: Exclusive and Failover

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
    u64 drained = 0;  // hashes that moved to another consumer when it had acknowledged them
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

// The delivery times of a run: `at_ms(index)` is that of an entry, 0 none. Times up to `now_ms` have
// come. Exclusive and Failover subscriptions do not wait for them.
struct NoTimes {
    i64 now_ms = 0;
    i64 at_ms(u32) const { return 0; }
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

// The next consumer to serve: in the best level with one that `may_take`, the one after the last
// that was served (I53). `order`: slots by level and id; `served`: level -> id last served.
template <class MayTake>
u32 next_in_turn(const std::vector<DispatchConsumer>& consumers, const std::vector<u32>& order,
                 std::map<int, u64>& served, MayTake may_take) {
    for (std::size_t begin = 0; begin < order.size();) {
        const int level = consumers[order[begin]].priority;
        u64& last = served[level];
        u32 first = kNoNode;
        u32 next = kNoNode;
        std::size_t at = begin;
        for (; at < order.size() && consumers[order[at]].priority == level; ++at) {
            if (!may_take(order[at])) continue;
            if (first == kNoNode) first = order[at];
            if (next == kNoNode && consumers[order[at]].id > last) next = order[at];
        }
        const u32 chosen = next != kNoNode ? next : first;
        if (chosen != kNoNode) {
            last = consumers[chosen].id;
            return chosen;
        }
        begin = at;
    }
    return kNoNode;
}

}  // namespace holdfast
