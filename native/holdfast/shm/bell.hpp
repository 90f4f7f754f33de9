// Bells: how a process that changed shared memory wakes those that wait for the change.
//
// A bell is a futex word: bit 0 "a process may be asleep", the rest a number that moves with every ring. A sleeper sets
// the bit, fences, looks again, sleeps. A ringer publishes, fences, looks at the bit. One of the two sees the other.
#pragma once

#include <atomic>

#include "holdfast/base/types.hpp"

namespace holdfast {

// After the change was published.
template <class Memory>
void ring_bell(Memory& memory, u32* bell) {
    memory.fence();  // pairs with: listen_to
    u32 value = memory.load(bell, std::memory_order_relaxed);
    while (value & 1) {
        if (memory.cas(bell, value, (value + 2) & ~1u, std::memory_order_relaxed)) {
            memory.wake(bell);
            return;
        }
    }
}

// The same in a bounded number of accesses, for a bell that one process rings at a time. Two at once set the bit again:
// the next ring wakes once for nothing.
template <class Memory>
void ring_bell_once(Memory& memory, u32* bell) {
    memory.fence();  // pairs with: listen_to
    if ((memory.load(bell, std::memory_order_relaxed) & 1) == 0) return;
    memory.fetch_add(bell, 1u, std::memory_order_relaxed);  // clears the bit, and moves the number
    memory.wake(bell);
}

// Returns the value to sleep on. The caller must look once more for what it waits for before it sleeps.
template <class Memory>
u32 listen_to(Memory& memory, u32* bell) {
    u32 value = memory.fetch_or(bell, 1u, std::memory_order_relaxed) | 1u;
    memory.fence();  // pairs with: ring_bell
    return value;
}

}  // namespace holdfast
