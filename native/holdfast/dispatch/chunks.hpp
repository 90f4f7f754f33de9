// Which consumer of a Shared subscription has the first parts of a chunked message: the later parts
// go to it, too. Its client cannot join parts that others have.
#pragma once

#include <unordered_map>
#include <vector>

#include "holdfast/dispatch/handed.hpp"
#include "holdfast/entry/run.hpp"

namespace holdfast {

class ChunkHolders {
 public:
    // The slot of the consumer that gets a part: the one with the first parts, if it may take more,
    // else `chosen`. `hash`: of the message's key. Messages of one hash that are open at the same time
    // go to one consumer. A first part counts again when it is redelivered; that harms only the turns.
    template <class MayTake>
    u32 taker(u32 hash, ChunkPart part, u32 chosen, const std::vector<DispatchConsumer>& consumers,
              const std::unordered_map<u64, u32>& slots, MayTake may_take) {
        const auto known = holders_.find(hash);
        const auto slot =
            known == holders_.end() ? slots.end() : slots.find(known->second.consumer);
        const u32 taker = slot != slots.end() && may_take(slot->second) ? slot->second : chosen;
        if (part == ChunkPart::first) {
            const u64 before = slot == slots.end() ? 0 : known->second.open;
            holders_[hash] = {consumers[taker].id, before + 1};
        } else if (part == ChunkPart::last && known != holders_.end() &&
                   --known->second.open == 0) {
            holders_.erase(known);
        }
        return taker;
    }

 private:
    struct Holder {
        u64 consumer;
        u64 open;  // messages whose last part has not come
    };
    std::unordered_map<u32, Holder> holders_;  // by hash: at most as many as keys have hashes
};

}  // namespace holdfast
