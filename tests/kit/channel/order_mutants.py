"""Mutants whose memory orders are too weak: each must be caught, as in mutants.py."""

from __future__ import annotations

from tests.kit.native import Mutant

MUTANTS = (
    Mutant(
        "publish-relaxed",
        "a push publishes its datum without release",
        "channel/ring.hpp",
        "const u8 was = memory_.exchange(words_.state(slot(tail)), kData, std::memory_order_acq_rel);",
        "const u8 was = memory_.exchange(words_.state(slot(tail)), kData, MUTANT ? "
        "std::memory_order_relaxed : std::memory_order_acq_rel);",
        "channel-one",
    ),
    Mutant(
        "inner-relaxed",
        "the inner datums of a batch are published without release",
        "channel/ring.hpp",
        "memory_.store(words_.state(slot(position)), kData, std::memory_order_release);",
        "memory_.store(words_.state(slot(position)), kData, std::memory_order_relaxed);",
        "channel-buffers-batch",
    ),
    Mutant(
        "end-relaxed",
        "the new END is stored without release, before its position",
        "channel/ring.hpp",
        "memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);",
        "memory_.store(words_.state(slot(end)), end_state, std::memory_order_relaxed);",
        "channel-buffers",
    ),
    Mutant(
        "release-relaxed",
        "a buffer is given back without release",
        "channel/ring.hpp",
        "memory_.store(words_.owner(index), 0, std::memory_order_release);",
        "memory_.store(words_.owner(index), 0, std::memory_order_relaxed);",
        "channel-return",
    ),
    Mutant(
        "owner-relaxed",
        "owners are read without acquire",
        "channel/ring.hpp",
        "return memory_.load(words_.owner(index), std::memory_order_acquire);",
        "return memory_.load(words_.owner(index), std::memory_order_relaxed);",
        "channel-return",
    ),
    Mutant(
        "resign-relaxed",
        "a role is given up without release",
        "channel/roles.hpp",
        "memory.cas(word, found, 0, std::memory_order_release);",
        "memory.cas(word, found, 0, MUTANT ? std::memory_order_relaxed : std::memory_order_release);",
        "channel-leave-read",
    ),
    Mutant(
        "state-relaxed",
        "states are read without acquire",
        "channel/ring.hpp",
        "return memory_.load(words_.state(s), std::memory_order_acquire);",
        "return memory_.load(words_.state(s), std::memory_order_relaxed);",
        "channel-old",
    ),
    Mutant(
        "unchanged-by-load",
        "a load, which may be old, decides whether a slot is unchanged",
        "channel/ring.hpp",
        "return memory_.cas(words_.state(s), expected, seen, std::memory_order_acq_rel);",
        "return memory_.load(words_.state(s), std::memory_order_acquire) == expected;",
        "channel-old",
    ),
    Mutant(
        "inspect-relaxed",
        "a datum is inspected without acquire",
        "channel/ring.hpp",
        "seen | kInspected, std::memory_order_acquire",
        "seen | kInspected, MUTANT ? std::memory_order_relaxed : std::memory_order_acquire",
        "channel-old-restart",
    ),
    Mutant(
        "freeze-without-acquire",
        "a push freezes a slot without acquire",
        "channel/ring.hpp",
        "kPending, std::memory_order_acq_rel",
        "kPending, MUTANT ? std::memory_order_release : std::memory_order_acq_rel",
        "channel-old-restart",
    ),
    Mutant(
        "take-without-release",
        "a pop takes its datum without release",
        "channel/ring.hpp",
        "!memory_.cas(words_.state(s), seen, kEmpty, std::memory_order_acq_rel)",
        "!memory_.cas(words_.state(s), seen, kEmpty, "
        "MUTANT ? std::memory_order_acquire : std::memory_order_acq_rel)",
        "channel-old-restart",
    ),
)
