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
    // else `chosen`. `hash`: of the message. Two with one hash go to one consumer, which does no harm.
    template <class MayTake>
    u32 taker(u32 hash, ChunkPart part, u32 chosen, const std::vector<DispatchConsumer>& consumers,
              const std::unordered_map<u64, u32>& slots, MayTake may_take) {
        const auto known = part == ChunkPart::first ? holders_.end() : holders_.find(hash);
        const auto slot = known == holders_.end() ? slots.end() : slots.find(known->second);
        const u32 taker = slot != slots.end() && may_take(slot->second) ? slot->second : chosen;
        if (part == ChunkPart::first) holders_[hash] = consumers[taker].id;
        if (part == ChunkPart::last) holders_.erase(hash);
        return taker;
    }

 private:
    std::unordered_map<u32, u64> holders_;  // hash -> consumer; at most one for each hash of a key
};

}  // namespace holdfast
