// A set of ordinals as runs, in order: the entries to be read again. A consumer that goes away
// leaves long runs, so a set of a million ordinals has mostly a few nodes.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "holdfast/base/types.hpp"

namespace holdfast {

// Half-open, as every range of ordinals is.
struct Run {
    u64 first;
    u64 end;

    bool operator==(const Run&) const = default;
};

// Of ordinals that rise: neighbours become one run.
inline std::vector<Run> runs_of(const std::vector<u64>& ordinals) {
    std::vector<Run> runs;
    for (const u64 ordinal : ordinals) {
        if (!runs.empty() && runs.back().end == ordinal)
            ++runs.back().end;
        else
            runs.push_back({ordinal, ordinal + 1});
    }
    return runs;
}

// Invariant: runs are not empty, do not touch, and `size_` is the sum of their lengths.
class RunSet {
 public:
    bool empty() const { return runs_.empty(); }
    u64 size() const { return size_; }
    u64 first() const { return runs_.begin()->first; }

    bool contains(u64 ordinal) const {
        auto next = runs_.upper_bound(ordinal);
        return next != runs_.begin() && ordinal < std::prev(next)->second;
    }

    // The first ordinal from here on that is not in the set.
    u64 next_absent(u64 ordinal) const {
        auto next = runs_.upper_bound(ordinal);
        return next != runs_.begin() ? std::max(ordinal, std::prev(next)->second) : ordinal;
    }

    // Calls `visit(run)` for each run that meets [first, end), uncut. It costs by these runs alone.
    template <class Visit>
    void each_meeting(u64 first, u64 end, Visit visit) const {
        auto next = runs_.upper_bound(first);
        if (next != runs_.begin() && std::prev(next)->second > first) --next;
        for (; next != runs_.end() && next->first < end; ++next)
            visit(Run{next->first, next->second});
    }

    // In bytes, as a node of the map takes with its header.
    u64 memory() const { return runs_.size() * 64; }

    void insert(u64 first, u64 end) {
        if (first >= end) return;
        auto next = runs_.upper_bound(first);
        if (next != runs_.begin() && std::prev(next)->second >= first) --next;
        // absorb the runs that it overlaps or touches
        while (next != runs_.end() && next->first <= end) {
            first = std::min(first, next->first);
            end = std::max(end, next->second);
            size_ -= next->second - next->first;
            next = runs_.erase(next);
        }
        runs_.emplace_hint(next, first, end);
        size_ += end - first;
    }

    void erase(u64 first, u64 end) {
        if (first >= end || runs_.empty()) return;
        auto next = runs_.upper_bound(first);
        if (next != runs_.begin() && std::prev(next)->second > first) --next;
        while (next != runs_.end() && next->first < end) {
            const Run old{next->first, next->second};
            next = runs_.erase(next);
            size_ -= old.end - old.first;
            if (old.first < first) put(next, {old.first, first});
            if (old.end > end) put(next, {end, old.end});
        }
    }

    void clear() {
        runs_.clear();
        size_ = 0;
    }

    // Removes the lowest ordinals: at most `count_max`, and only runs that are close together.
    // Close means that reading them in one go costs less than reading each by itself.
    std::vector<Run> take(u64 count_max, u64 gap_max) {
        std::vector<Run> taken;
        u64 count = 0;
        while (!runs_.empty() && count < count_max) {
            const auto begin = runs_.begin();
            if (!taken.empty() && begin->first - taken.back().end > gap_max) break;
            const Run run{begin->first, std::min(begin->second, begin->first + count_max - count)};
            taken.push_back(run);
            count += run.end - run.first;
            erase(run.first, run.end);
        }
        return taken;
    }

    std::vector<Run> list() const {
        std::vector<Run> all;
        for (const auto& [first, end] : runs_) all.push_back({first, end});
        return all;
    }

    bool sound() const {
        u64 sum = 0;
        const Run* before = nullptr;
        Run last{};
        for (const auto& [first, end] : runs_) {
            if (first >= end || (before != nullptr && first <= before->end)) return false;
            sum += end - first;
            last = {first, end};
            before = &last;
        }
        return sum == size_;
    }

 private:
    using Runs = std::map<u64, u64>;

    void put(Runs::iterator hint, Run run) {
        runs_.emplace_hint(hint, run.first, run.end);
        size_ += run.end - run.first;
    }

    Runs runs_;  // first -> end
    u64 size_ = 0;
};

}  // namespace holdfast
