// Old values: a load may see a value that another process has overwritten already.
//
// Every word keeps its last versions. A process has a view: for each word the oldest version that it may still see. A
// load picks any version from there on, and the view moves up to it. A release store gives the view of its process to the
// new version. An acquire load of that version adds it to the view of the reader. So views say what happened before,
// by declared orders alone, and a load with too weak an order sees values from before.
//
// - A read-modify-write reads the newest version, and hands on the view of the version that it replaces. One that fails
//   is a load; it may see any version but one that would have made it succeed.
// - A fence adds the views of all earlier fences to its own. Calls of the kernel are fences.
// - The view of a dead process goes to the next fence: its stores are visible before the kernel releases its locks.
// - A sleeper's check, audits, and a process that runs alone see the newest versions.
//
// Not shown: a store that overtakes an earlier load, and two stores of one process that overtake each other. A word
// keeps at most four versions: older ones can no longer be seen. Plain bytes have one value; see knowledge.hpp.
#pragma once

#include <algorithm>

#include "model/state.hpp"

namespace model {

using View = u64;  // two bits for each word

constexpr u64 lane(View view, int word) {
    return view >> 2 * word & 3;
}
constexpr View with_lane(View view, int word, u64 version) {
    return (view & ~(u64{3} << 2 * word)) | version << 2 * word;
}
constexpr View joined(View a, View b) {
    constexpr u64 kLow = 0x5555555555555555u;
    // Lanes in which a is larger: its high bit alone, or equal high bits and its low bit alone.
    const u64 high = (a & ~b) >> 1 & kLow, less = (b & ~a) >> 1 & kLow;
    const u64 larger = high | (~less & (a & ~b) & kLow);
    const u64 mask = larger | larger << 1;
    return (a & mask) | (b & ~mask);
}

class OldValues {
 public:
    // `word` is the number of an atomic word, `cell` its cell.

    // The versions that p may see, the newest first: 0 .. visible() - 1.
    static int visible(const State& s, int p, int word, bool seq_cst) {
        const Versions& all = s.past.words[static_cast<std::size_t>(word)];
        const View view = joined(view_of(s, p), seq_cst ? s.past.fenced : 0);
        return all.old_count + 1 - static_cast<int>(lane(view, word));
    }
    static OldValue version(const State& s, int cell, int word, int age) {
        const Versions& all = s.past.words[static_cast<std::size_t>(word)];
        const Cell& newest = s.cell[static_cast<std::size_t>(cell)];
        if (age == 0) return {newest.value, newest.unknown, all.view};
        return all.old[static_cast<std::size_t>(all.old_count - age)];
    }

    // p has seen this version.
    static void saw(State& s, int p, int word, int age, const OldValue& seen, bool acquire) {
        const u64 number = s.past.words[static_cast<std::size_t>(word)].old_count - u64(age);
        View& view = view_of(s, p);
        view = joined(view, with_lane(0, word, number));
        if (acquire) view = joined(view, seen.view);
    }

    // The newest version becomes old. The caller sets the cell. `update`: by a read-modify-write.
    static void push(State& s, int p, int cell, int word, bool release, bool update) {
        Versions& all = s.past.words[static_cast<std::size_t>(word)];
        if (all.old_count == kOldMax) forget(s, word, 1);
        const Cell& newest = s.cell[static_cast<std::size_t>(cell)];
        all.old[all.old_count++] = {newest.value, newest.unknown, all.view};
        View& view = view_of(s, p);
        view = with_lane(view, word, all.old_count);
        if (!update) all.view = 0;
        if (release) all.view = joined(all.view, view);
    }

    static void fence(State& s, int p) {
        View& view = view_of(s, p);
        view = s.past.fenced = joined(view, s.past.fenced);
    }

    // Forgets the versions that no process can see any more.
    static void forget_unseen(State& s, int processes) {
        for (int word = 0; word < s.past.count; ++word) {
            const Versions& all = s.past.words[static_cast<std::size_t>(word)];
            if (all.old_count == 0) continue;
            u64 oldest = all.old_count;
            for (int p = 0; p < processes; ++p) {
                const Status status = s.process[static_cast<std::size_t>(p)].status;
                if (status == Status::running || status == Status::sleeping)
                    oldest = std::min(oldest, lane(view_of(s, p), word));
            }
            if (oldest != 0) forget(s, word, oldest);
        }
        for (int p = 0; p < processes; ++p) {  // a finished process hands its view on by its death
            const Status status = s.process[static_cast<std::size_t>(p)].status;
            if (status == Status::dead || status == Status::gone ||
                (status == Status::finished && s.crashes_left == 0))
                view_of(s, p) = 0;
        }
    }

 private:
    static View& view_of(State& s, int p) { return s.past.views[static_cast<std::size_t>(p)]; }
    static View view_of(const State& s, int p) { return s.past.views[static_cast<std::size_t>(p)]; }

    static void forget(State& s, int word, u64 count) {
        auto lower = [&](View& view) {
            const u64 now = lane(view, word);
            view = with_lane(view, word, now < count ? 0 : now - count);
        };
        Versions& all = s.past.words[static_cast<std::size_t>(word)];
        all.old_count = static_cast<u8>(all.old_count - count);
        for (std::size_t i = 0; i < all.old_count; ++i) all.old[i] = all.old[i + count];
        for (View& view : s.past.views) lower(view);
        lower(s.past.fenced);
        for (int other = 0; other < s.past.count; ++other) {
            Versions& its = s.past.words[static_cast<std::size_t>(other)];
            lower(its.view);
            for (std::size_t i = 0; i < its.old_count; ++i) lower(its.old[i].view);
        }
    }
};

}  // namespace model
