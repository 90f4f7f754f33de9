// Entries that were delivered before a backward reset, and not since (I58).
#pragma once

#include <span>
#include <vector>

#include "holdfast/dispatch/runs.hpp"

namespace holdfast {

class Undelivered {
 public:
    // Notes a reset behind which [first, end) may have been delivered before: by an earlier
    // life of the broker, by another owner, or here. Until it is delivered again it counts as
    // delivered before the reset only.
    void insert(u64 first, u64 end) { set_.insert(first, end); }
    void erase(u64 first, u64 end) {
        if (!set_.empty()) set_.erase(first, end);
    }

    // True if it was delivered before a backward reset, and not since. Then an acknowledgement of
    // it is outdated.
    bool contains(u64 ordinal) const { return set_.contains(ordinal); }
    u64 size() const { return set_.size(); }
    std::vector<Run> list() const { return set_.list(); }
    bool sound() const { return set_.sound(); }

    // `kept` gets the parts of `runs` (which do not touch) that were delivered since. Returns how
    // many were not.
    u64 without(std::span<const Run> runs, std::vector<Run>& kept) const {
        RunSet left;
        u64 before = 0;
        for (const Run& run : runs) {
            left.insert(run.first, run.end);
            before += run.end - run.first;
        }
        for (const Run& run : runs)  // the set may have a million runs, where delayed entries wait
            set_.each_meeting(run.first, run.end,
                              [&](const Run& each) { left.erase(each.first, each.end); });
        kept = left.list();
        return before - left.size();
    }

    // Another owner has delivered since: only what is in `runs`, too, stays undelivered.
    void keep(std::span<const Run> runs) {
        RunSet gone = set_;
        for (const Run& run : runs) gone.erase(run.first, run.end);
        for (const Run& run : gone.list()) set_.erase(run.first, run.end);
    }

 private:
    RunSet set_;
};

}  // namespace holdfast
