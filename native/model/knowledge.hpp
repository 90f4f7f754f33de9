// Knowledge of plain accesses: happens-before from the *declared* orders, without unbounded clocks.
//
// An event is "the last write of plain cell c" or "the last read of c by process q". Every process and every cell has a
// set of events that it does not know of (bits set: unknown). An acquiring access of a word learns what the word knows;
// a releasing one teaches it. A plain write needs to know the last write of its cell and all reads since; a plain
// read needs to know the last write. Anything else is a data race, although the exploration itself is sequentially
// consistent: that is how a weakened acquire or release dies.
//
// - A relaxed store teaches the word nothing: its readers learn of no event through it. (C++20: no release sequence
//   is continued by a plain relaxed store, not even of the same thread.)
// - A read-modify-write continues the release sequence of what it found: the word keeps what it knows.
// - Fences teach nothing. That is stricter than the standard; the algorithms do not rely on fences for payload.
// - The kernel orders a lock byte's release (also by death) before its next taking.
//
// Events that every process knows of are removed from the words: they no longer tell states apart.
#pragma once

#include <bit>
#include <stdexcept>
#include <string>

#include "model/world.hpp"

namespace model {

class Knowledge {
 public:
    // `processes` are tracked; a process beyond them (the auditor) knows everything and leaves no events.
    Knowledge(const World& world, int processes, bool enabled)
        : world_(world), processes_(processes), enabled_(enabled) {
        if (world.plains() * (processes + 1) > 64)
            throw std::logic_error("more than 64 events: fewer plain cells, or fewer processes");
    }

    void acquire(State& s, int p, int cell) const {
        learn(s, p, s.cell[static_cast<std::size_t>(cell)].unknown);
    }
    void learn(State& s, int p, u64 unknown) const {
        Process& process = s.process[static_cast<std::size_t>(p)];
        u64 left = process.unknown & unknown;
        if (left == process.unknown) return;
        process.unknown = left;
        forget_common(s);
    }

    // Knowledge of a word after a store by p.
    u64 after_store(const State& s, int p, bool release) const {
        return release ? s.process[static_cast<std::size_t>(p)].unknown : missing_somewhere(s);
    }

    // Knowledge of a word after a read-modify-write by p.
    u64 after_update(const State& s, int p, int cell, bool release) const {
        u64 unknown = s.cell[static_cast<std::size_t>(cell)].unknown;
        return release ? unknown & s.process[static_cast<std::size_t>(p)].unknown : unknown;
    }

    // An empty text, or what races.
    std::string write(State& s, int p, int plain) const {
        if (!enabled_ || p >= processes_) return {};
        const u64 write = write_bit(plain);
        const u64 reads = reads_bits(plain);
        std::string race = race_text(s, p, plain, write | reads, "write");
        if (!race.empty()) return race;
        happened(s, p, write, reads);
        return {};
    }

    std::string read(State& s, int p, int plain) const {
        if (!enabled_ || p >= processes_) return {};
        std::string race = race_text(s, p, plain, write_bit(plain), "read");
        if (!race.empty()) return race;
        happened(s, p, read_bit(plain, p), 0);
        return {};
    }

    // For a process that is gone or will do nothing more.
    void release_process(State& s, int p) const {
        Process& process = s.process[static_cast<std::size_t>(p)];
        if (process.unknown == 0) return;
        process.unknown = 0;
        forget_common(s);
    }

 private:
    u64 write_bit(int plain) const { return u64{1} << (plain * (processes_ + 1)); }
    u64 read_bit(int plain, int p) const { return write_bit(plain) << (p + 1); }
    u64 reads_bits(int plain) const {
        return ((u64{1} << processes_) - 1) * (write_bit(plain) << 1);
    }

    std::string race_text(const State& s, int p, int plain, u64 needed, const char* access) const {
        u64 missing = s.process[static_cast<std::size_t>(p)].unknown & needed;
        if (missing == 0) return {};
        int bit = std::countr_zero(missing) - plain * (processes_ + 1);
        std::string other = bit == 0 ? std::string("the last write")
                                     : "the read by process " + std::to_string(bit - 1);
        return text_of(access, " of ", world_.plain_info(plain).name, " is not ordered after ",
                       other);
    }

    // `event` is new and known to p alone; `over` are events that a knower of this one need not know of any more.
    void happened(State& s, int p, u64 event, u64 over) const {
        for (int q = 0; q < processes_; ++q) {
            Process& process = s.process[static_cast<std::size_t>(q)];
            if (learns_nothing(s, process)) continue;
            process.unknown = (process.unknown | event) & ~over;
        }
        s.process[static_cast<std::size_t>(p)].unknown &= ~event;
        const u64 somewhere = missing_somewhere(s);
        for (int c = 0; c < world_.cells(); ++c) {
            const Cell& cell = s.cell[static_cast<std::size_t>(c)];
            if (world_.info(c).kind == CellKind::plain) continue;
            s.set(c, {cell.value, ((cell.unknown | event) & ~over) & somewhere});
        }
        for_others(s, [&](u64 unknown) { return ((unknown | event) & ~over) & somewhere; });
    }

    // Its gaps cannot matter any more: a finished process passes its knowledge on only by its death.
    static bool learns_nothing(const State& s, const Process& process) {
        return process.status == Status::absent || process.status == Status::gone ||
               (process.status == Status::finished && s.crashes_left == 0);
    }

    u64 missing_somewhere(const State& s) const {
        u64 any = 0;
        for (int p = 0; p < processes_; ++p) any |= s.process[static_cast<std::size_t>(p)].unknown;
        return any;
    }

    void forget_common(State& s) const {
        const u64 somewhere = missing_somewhere(s);
        for (int c = 0; c < world_.cells(); ++c) {
            const Cell& cell = s.cell[static_cast<std::size_t>(c)];
            if ((cell.unknown & ~somewhere) != 0) s.set(c, {cell.value, cell.unknown & somewhere});
        }
        for_others(s, [&](u64 unknown) { return unknown & somewhere; });
    }

    // Values that are not in a cell: still in a buffer, or overwritten.
    template <class Change>
    void for_others(State& s, Change&& change) const {
        if (s.has_past) {
            for (int w = 0; w < s.past.count; ++w) {
                Versions& all = s.past.words[static_cast<std::size_t>(w)];
                for (std::size_t i = 0; i < all.old_count; ++i)
                    all.old[i].unknown = change(all.old[i].unknown);
            }
        }
        if (s.buffered == 0) return;
        for (int p = 0; p < processes_; ++p) {
            const auto at = static_cast<std::size_t>(p);
            for (std::size_t i = 0; i < s.process[at].buffered; ++i) {
                Buffered& store = s.buffer[at][i];
                store.unknown = change(store.unknown);
            }
        }
    }

    const World& world_;
    int processes_;
    bool enabled_;
};

}  // namespace model
