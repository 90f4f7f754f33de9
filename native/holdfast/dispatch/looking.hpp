// Slow looks at the dispatcher's tables (tables.hpp): lists for the next owner, and the checks.
#pragma once

#include "holdfast/dispatch/tables.hpp"

namespace holdfast {

inline std::vector<Run> Dispatch::held() const {
    std::vector<u64> ordinals;
    ordinals.reserve(pending_.size());
    pending_.each_ordinal([&](u64 ordinal) { ordinals.push_back(ordinal); });
    std::sort(ordinals.begin(), ordinals.end());
    return runs_of(ordinals);
}

inline std::vector<std::pair<u64, u32>> Dispatch::counts(u64 most) const {
    std::vector<std::pair<u64, u32>> all;
    counts_.each([&](u64 ordinal, u32 count) { all.emplace_back(ordinal, count); });
    if (all.size() > most) {
        std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most), all.end());
        all.resize(most);
    }
    std::sort(all.begin(), all.end());
    return all;
}

inline u64 Dispatch::next_free(u64 ordinal) const {
    for (u64 before = ~ordinal; before != ordinal;) {
        before = ordinal;
        while (pending_.contains(ordinal)) ++ordinal;
        if (!schedule_.empty()) ordinal = schedule_.next_free(ordinal);
    }
    return ordinal;
}

inline void Dispatch::require_unscheduled(u64 ordinal) const {
    if (schedule_.contains(ordinal))
        throw Error(Code::corrupt,
                    "entry " + std::to_string(ordinal) +
                        " waits for its delivery time, and is delivered or read (I271)");
}

inline void Dispatch::check() const {
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
    if (!schedule_.sound())
        throw Error(Code::corrupt, "an entry waits without a delivery time (I270)");
    pending_.each_ordinal([&](u64 ordinal) { require_unscheduled(ordinal); });
    if (!halted_ && !replay_.empty() && replay_.list().back().end > position_)
        throw Error(Code::corrupt, "an entry above the read position is to be read again (I266)");
    if (keys_ != nullptr) {
        keys_->check([&](u64 ordinal) {
            const PendingNode* node = pending_.find(ordinal);
            return node == nullptr ? KeyTable::kFree : node->holder;
        });
        keys_->each_waiting([&](u64 ordinal) { require_unscheduled(ordinal); });
    }
    for (const Run& run : replay_.list())
        for (u64 ordinal = run.first; ordinal < run.end; ++ordinal) {
            require_unscheduled(ordinal);
            if (pending_.contains(ordinal))
                throw Error(Code::corrupt, "entry " + std::to_string(ordinal) +
                                               " is held and waits to be read again (I51)");
        }
}

}  // namespace holdfast
