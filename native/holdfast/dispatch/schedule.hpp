// Entries whose delivery time has not come, by that time and by ordinal.
//
//   insert(ordinal, at) ─▶ waiting (runs of ordinals) ── take_due(now) ─▶ visited, in the order of times
//                          times (a heap of (at, ordinal)) ── erase(first, end): acknowledged, skipped
//
// A time is 16 bytes, and neighbours share one run of ordinals. A million entries take some 16 MiB
// if all of a backlog waits. If every second one does, they take at most 100 MiB. An erased entry leaves
// its time in the heap until it comes up, or until such times are the majority.
//
// I270: each waiting ordinal has a time in the heap. Times without a waiting ordinal are at most as
// many as the waiting ones, plus kSlack.
#pragma once

#include <algorithm>
#include <vector>

#include "holdfast/base/types.hpp"
#include "holdfast/dispatch/runs.hpp"

namespace holdfast {

class Schedule {
 public:
    static constexpr u64 kSlack = 1024;

    bool empty() const { return waiting_.empty(); }
    u64 size() const { return waiting_.size(); }
    bool contains(u64 ordinal) const { return waiting_.contains(ordinal); }
    const RunSet& waiting() const { return waiting_; }

    // Of heap and runs, in bytes.
    u64 memory() const { return times_.capacity() * sizeof(Time) + waiting_.memory(); }

    void insert(u64 ordinal, i64 at_ms) {
        if (waiting_.contains(ordinal)) return;
        waiting_.insert(ordinal, ordinal + 1);
        times_.push_back({at_ms, ordinal});
        std::push_heap(times_.begin(), times_.end());
    }

    void erase(u64 first, u64 end) {
        waiting_.erase(first, end);
        tidy();
    }

    // The first ordinal from here on that does not wait.
    u64 next_free(u64 ordinal) const { return waiting_.next_absent(ordinal); }

    // The delivery time that comes next. Only if an entry waits.
    i64 next_due() {
        while (!waiting_.contains(times_.front().ordinal)) pop();
        return times_.front().at_ms;
    }

    // Calls `visit(ordinal)` for each entry whose time has come, and removes it: at most so many.
    template <class Visit>
    u64 take_due(i64 now_ms, Visit visit, u64 most = ~u64{0}) {
        u64 taken = 0;
        while (taken < most && !empty() && next_due() <= now_ms) {
            const u64 ordinal = times_.front().ordinal;
            pop();
            waiting_.erase(ordinal, ordinal + 1);
            visit(ordinal);
            ++taken;
        }
        tidy();
        return taken;
    }

    void clear() {
        waiting_.clear();
        drop_times();
    }

    bool sound() const {
        RunSet timed;
        for (const Time& each : times_)
            if (waiting_.contains(each.ordinal)) timed.insert(each.ordinal, each.ordinal + 1);
        return waiting_.sound() && timed.size() == waiting_.size() &&
               times_.size() <= 2 * waiting_.size() + kSlack &&
               std::is_heap(times_.begin(), times_.end());
    }

 private:
    struct Time {
        i64 at_ms;
        u64 ordinal;
        // The earliest on top; of equal times the lowest ordinal.
        bool operator<(const Time& other) const {
            return at_ms != other.at_ms ? at_ms > other.at_ms : ordinal > other.ordinal;
        }
        bool operator==(const Time&) const = default;
    };

    void pop() {
        std::pop_heap(times_.begin(), times_.end());
        times_.pop_back();
    }

    // Frees their memory, too, which `times_ = {}` would keep.
    void drop_times() { std::vector<Time>().swap(times_); }

    // Drops times without a waiting ordinal, and second ones, if they are too many.
    void tidy() {
        if (empty()) drop_times();
        if (times_.size() <= 2 * waiting_.size() + kSlack) return;
        std::erase_if(times_, [&](const Time& each) { return !waiting_.contains(each.ordinal); });
        std::sort(times_.begin(), times_.end());
        times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
        std::make_heap(times_.begin(), times_.end());
        times_.shrink_to_fit();
    }

    RunSet waiting_;
    std::vector<Time> times_;
};

}  // namespace holdfast
