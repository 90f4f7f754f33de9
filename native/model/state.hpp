// A global state: every shared cell, where every process stands, and the hash by which states are recognised.
//
// A cell is an atomic word, some plain bytes (their content as a number) or a lock byte. A lock byte holds 0 if it is
// free, else the holder's number + 1, or bits if several share it. Bits also keep the plain accesses that a cell or a
// process does *not* know of: see knowledge.hpp.
#pragma once

#include <array>
#include <cstring>

#include "holdfast/base/types.hpp"

namespace model {

using namespace holdfast;

inline constexpr int kCellsMax = 96;
inline constexpr int kProcessesMax = 6;
inline constexpr std::size_t kBufferedMax = 4;  // stores of one process, see store_buffers.hpp
inline constexpr int kWordsWithPastMax = 32;    // see old_values.hpp
inline constexpr std::size_t kOldMax = 3;

struct Hash {
    u64 low = 0;
    u64 high = 0;
    bool operator==(const Hash&) const = default;
    void operator^=(Hash other) {
        low ^= other.low;
        high ^= other.high;
    }
};

constexpr u64 scramble(u64 x) {  // the finaliser of MurmurHash3: every bit reaches every bit
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    x ^= x >> 33;
    return x;
}

// 128 bits from 128 bits and a place. A state's hash is the exclusive or over its places.
constexpr Hash hash_part(u64 place, u64 a, u64 b) {
    return {scramble(scramble(a ^ place * 0x9E3779B97F4A7C15u) + b),
            scramble(scramble(b ^ place * 0xD6E8FEB86659FD93u) + a * 0xA0761D6478BD642Fu)};
}

struct Cell {
    u64 value = 0;
    u64 unknown = 0;  // events that an acquire of this cell does not teach
};

// Lock bytes: free (0), held by one alone (its number + 1), or shared by several (a bit for each).
inline constexpr u64 kSharedByte = 0x100;

constexpr bool holds_byte(u64 value, int p) {
    return (value & kSharedByte) != 0 ? (value >> p & 1) != 0 : value == static_cast<u64>(p) + 1;
}
constexpr bool shareable(u64 value) {
    return value == 0 || (value & kSharedByte) != 0;
}
constexpr u64 byte_shared_with(u64 value, int p) {
    return value | kSharedByte | u64{1} << p;
}
constexpr u64 byte_without(u64 value, int p) {
    if ((value & kSharedByte) == 0) return 0;
    const u64 rest = value & ~(u64{1} << p);
    return rest == kSharedByte ? 0 : rest;
}

enum class Status : u8 {
    running,
    sleeping,
    finished,
    dead,  // and the kernel has not released all its lock bytes yet
    gone,  // dead, with nothing left of it
    absent,
};

struct Process {
    u32 node = 0;
    Status status = Status::absent;
    u8 bell = 0;      // the cell it sleeps on
    u8 buffered = 0;  // stores in its buffer
    u64 unknown = 0;  // events that are not ordered before what it does next
};

// A store that has not reached memory yet.
struct Buffered {
    u64 value = 0;
    u64 unknown = 0;  // as in Cell
    u16 cell = 0;
    bool release = false;  // it waits for the stores before it
    bool update = false;   // of a read-modify-write: no other store to the cell comes first
    bool seq_cst = false;  // seq_cst loads wait for it

    Hash hash(u64 place) const {
        const u64 what = u64{cell} << 3 | u64{release} << 2 | u64{update} << 1 | u64{seq_cst};
        return hash_part(place, value, unknown ^ scramble(what));
    }
};

// A value of a word that was overwritten. `view`: see old_values.hpp.
struct OldValue {
    u64 value = 0;
    u64 unknown = 0;
    u64 view = 0;
};

struct Versions {
    u64 view = 0;  // of the newest, whose value is in the cell
    u8 old_count = 0;
    std::array<OldValue, kOldMax> old{};  // the oldest first
};

struct Past {
    std::array<u64, kProcessesMax> views{};
    u64 fenced = 0;  // the view of all fences
    u8 count = 0;    // words
    std::array<Versions, kWordsWithPastMax> words{};

    void assign(const Past& other) {
        std::memcpy(static_cast<void*>(this), &other,
                    offsetof(Past, words) + other.count * sizeof(Versions));
    }
    Hash hash() const {
        u64 place = 1'000;
        Hash sum = hash_part(place, fenced, 0);
        for (u64 view : views) sum ^= hash_part(++place, view, 0);
        for (std::size_t i = 0; i < count; ++i) {
            const Versions& all = words[i];
            place = 2'000 + i * 10;
            sum ^= hash_part(place, all.view, all.old_count);
            for (std::size_t j = 0; j < all.old_count; ++j) {
                const OldValue& old = all.old[j];
                sum ^= hash_part(++place, old.value, old.unknown + scramble(old.view + 1));
            }
        }
        return sum;
    }
};

struct State {
    std::array<Process, kProcessesMax> process{};
    Hash cells_hash{};
    u8 crashes_left = 0;
    u8 buffered = 0;        // stores in all buffers
    bool has_past = false;  // loads may see old values
    std::array<Cell, kCellsMax> cell{};
    std::array<std::array<Buffered, kBufferedMax>, kProcessesMax> buffer{};
    Past past{};

    // Only the cells and buffers in use are copied.
    void assign(const State& other, int cells) {
        std::memcpy(static_cast<void*>(this), &other,
                    offsetof(State, cell) + static_cast<std::size_t>(cells) * sizeof(Cell));
        if (buffered != 0) buffer = other.buffer;
        if (has_past) past.assign(other.past);
    }

    void set(int index, Cell now) {
        Cell& was = cell[static_cast<std::size_t>(index)];
        cells_hash ^= part(index, was);
        was = now;
        cells_hash ^= part(index, was);
    }

    Hash hash(int processes) const {
        Hash sum = cells_hash;
        for (int p = 0; p < processes; ++p) {
            const Process& one = process[static_cast<std::size_t>(p)];
            u64 where = u64{one.node} << 16 | static_cast<u64>(one.status) << 8 | one.bell;
            sum ^= hash_part(static_cast<u64>(kCellsMax + p), where, one.unknown);
        }
        sum ^= hash_part(kCellsMax + kProcessesMax, crashes_left, 0);
        if (buffered != 0) sum ^= buffers_hash(processes);
        if (has_past) sum ^= past.hash();
        if (sum.low == 0) sum.low = 1;  // 0 marks a free place in the visited set
        return sum;
    }

 private:
    Hash buffers_hash(int processes) const {
        Hash sum;
        for (int p = 0; p < processes; ++p) {
            const std::size_t at = static_cast<std::size_t>(p);
            for (std::size_t i = 0; i < process[at].buffered; ++i) {
                const u64 place = kCellsMax + kProcessesMax + 1 + at * kBufferedMax + i;
                sum ^= buffer[at][i].hash(place);
            }
        }
        return sum;
    }
    static Hash part(int index, const Cell& c) {
        return hash_part(static_cast<u64>(index), c.value, c.unknown);
    }
};

}  // namespace model
