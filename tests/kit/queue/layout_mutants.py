"""Mutants of the queue's layout: each is a layout that this build would misread."""

from __future__ import annotations

from tests.kit.native import Mutant

LAYOUT, TABLE, LOCKS = "queue/layout.hpp", "shm/participants.hpp", "shm/lock_bytes.hpp"
CHANGES = {
    "owner-of-11-bits": (LAYOUT, "kOwnerBits = 10;", "kOwnerBits = 11;"),
    "states-swapped": (LAYOUT, "done = 5, skip = 6,", "done = 6, skip = 5,"),
    "mark-without-known": (LAYOUT, "(length - 1) << 13 | u64{1} << 12", "(length - 1) << 13"),
    "lap-moved": (LAYOUT, "return 13 + shift_ - 1;", "return 13 + shift_;"),
    "count-elsewhere": (LAYOUT, "std::min(deliveries, kDeliveriesMax));", "deliveries & 1);"),
    "seal": (LAYOUT, "^ 0x5A5)", "^ 0x5A4)"),
    "controls-swapped": (LAYOUT, "head, read, tail,", "head, tail, read,"),
    "side-swapped": (LAYOUT, "u64 mark; u64 claimed_ms;", "u64 claimed_ms; u64 mark;"),
    "larger-sides": (LAYOUT, "granules_ * sizeof(SideEntry));", "granules_ * 32);"),
    "params-moved": (
        LAYOUT,
        "u32 participants; Delivery delivery;",
        "Delivery delivery; u32 participants;",
    ),
    "entry-moved": (TABLE, "u64 who; u64 since;", "u64 since; u64 who;"),
    "locks-elsewhere": (LOCKS, "off_t{1} << 40;", "off_t{1} << 39;"),
    "block-magic": ("base/block.hpp", "kBlockMagic = 0x4648;", "kBlockMagic = 0x4649;"),
}
MUTANTS = tuple(
    Mutant(name, "two builds would misread each other", *change, program="fingerprint")
    for name, change in CHANGES.items()
)
