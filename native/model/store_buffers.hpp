// Store buffers: a store reaches memory later than its process believes.
//
// in_order: x86. One queue per process. A load looks into its own queue first. A read-modify-write waits until the queue
// is empty, as locked instructions do. A seq_cst store does the same.
//
// by_cell: weaker machines. Stores to different cells reach memory in any order, but a release store only after all
// stores before it. A read-modify-write is buffered, too: it reads memory at once, and its new value arrives later. No
// other store to its cell gets in between, so it stays atomic, but it is not a fence for the loads behind it. A release
// one waits for the stores before it. A compare-and-swap that fails is a load.
//
// In both, fences and calls of the kernel wait until the buffer is empty. Buffers drain at any time, also of a process
// that stands still. A process dies with an empty buffer, because its stores are visible before the kernel releases its
// locks. Until then a dead process cannot be told from a slow one.
//
// Plain accesses are not buffered. They are checked for races by declared orders; without a race, nothing could tell.
#pragma once

#include <span>
#include <stdexcept>

#include "model/access.hpp"
#include "model/state.hpp"

namespace model {

enum class StoreBuffers : u8 { none, in_order, by_cell };

inline std::span<const Buffered> buffer_of(const State& s, int p) {
    return {s.buffer[static_cast<std::size_t>(p)].data(),
            s.process[static_cast<std::size_t>(p)].buffered};
}

constexpr bool is_update(Kind kind) {
    return kind == Kind::cas || kind == Kind::fetch_add || kind == Kind::fetch_or ||
           kind == Kind::fetch_and || kind == Kind::exchange;
}

// The own store that a load of the cell sees; null: none is buffered.
inline const Buffered* newest_store(const State& s, int p, int cell) {
    const std::span<const Buffered> mine = buffer_of(s, p);
    for (std::size_t i = mine.size(); i-- > 0;) {
        if (mine[i].cell == cell) return &mine[i];
    }
    return nullptr;
}

// The value that a load by p sees.
inline u64 seen_value(const State& s, int p, int cell) {
    const Buffered* own = newest_store(s, p, cell);
    return own != nullptr ? own->value : s.cell[static_cast<std::size_t>(cell)].value;
}

// The new value of a read-modify-write of a process other than p is on its way to the cell.
inline bool updated_by_another(const State& s, int p, int cell) {
    for (int q = 0; q < kProcessesMax; ++q) {
        if (q == p) continue;
        for (const Buffered& store : buffer_of(s, q)) {
            if (store.cell == cell && store.update) return true;
        }
    }
    return false;
}

// Can p make this access now? Otherwise stores reach memory first.
inline bool buffer_allows(const State& s, int p, const Access& access, StoreBuffers mode,
                          std::size_t stores_max) {
    const std::span<const Buffered> mine = buffer_of(s, p);
    const bool seq_cst = access.order == std::memory_order_seq_cst;
    switch (access.kind) {
        case Kind::load:
            for (const Buffered& store : mine) {
                if (seq_cst && store.seq_cst) return false;
            }
            return true;
        case Kind::plain_read:
        case Kind::plain_write:
        case Kind::finished:
            return true;
        case Kind::store:
            if (mode == StoreBuffers::in_order && seq_cst) return mine.empty();
            return mine.size() < stores_max;
        default:
            break;
    }
    if (mine.empty() && !is_update(access.kind)) return true;  // a fence, the kernel
    if (mode == StoreBuffers::in_order || !is_update(access.kind)) return mine.empty();
    if (access.kind == Kind::cas && seen_value(s, p, access.cell) != access.a)
        return true;  // it fails: a load
    if (releases(access.order) && !mine.empty()) return false;
    return mine.size() < stores_max && newest_store(s, p, access.cell) == nullptr &&
           !updated_by_another(s, p, access.cell);
}

// Can p's buffered store number i reach memory now?
inline bool can_drain(const State& s, int p, std::size_t i, StoreBuffers mode) {
    const std::span<const Buffered> mine = buffer_of(s, p);
    if (mode == StoreBuffers::in_order || mine[i].release) {
        if (i != 0) return false;
    }
    for (std::size_t j = 0; j < i; ++j) {
        if (mine[j].cell == mine[i].cell) return false;
    }
    return mine[i].update || !updated_by_another(s, p, mine[i].cell);
}

inline void buffer_store(State& s, int p, const Buffered& store) {
    u8& count = s.process[static_cast<std::size_t>(p)].buffered;
    if (count == kBufferedMax) throw std::logic_error("a store buffer is full");
    s.buffer[static_cast<std::size_t>(p)][count++] = store;
    ++s.buffered;
}

// Store number i of p reaches memory. Returns it.
inline Buffered drain(State& s, int p, std::size_t i) {
    auto& mine = s.buffer[static_cast<std::size_t>(p)];
    u8& count = s.process[static_cast<std::size_t>(p)].buffered;
    const Buffered store = mine[i];
    for (std::size_t j = i + 1; j < count; ++j) mine[j - 1] = mine[j];
    --count;
    --s.buffered;
    s.set(store.cell, {store.value, store.unknown});
    return store;
}

// Shows every read-modify-write as done: the next value of its cell is decided.
inline void show_updates(State& s) {
    for (int p = 0; s.buffered != 0 && p < kProcessesMax; ++p) {
        for (const Buffered& store : buffer_of(s, p)) {
            if (store.update) s.set(store.cell, {store.value, store.unknown});
        }
    }
}

}  // namespace model
