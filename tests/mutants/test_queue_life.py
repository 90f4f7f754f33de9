"""Mutants of what a long life finds in a queue: locks, contention, stall limits, counts, and its layout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.kit.native_mutants import NativeMutant, run_over

pytestmark = pytest.mark.timeout(600)

MUTANTS = (
    NativeMutant(
        "recoverer-alone",
        "a recoverer takes a dead one's byte for itself",
        "participants.hpp",
        "if (still_ours() && detail::set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {",
        "if (still_ours() && detail::set_lock(fd(), F_WRLCK, byte_of(slot), 1)) {",
        "test_participants",
    ),
    NativeMutant(
        "joiner-alone",
        "a joiner recovers what the last holder left while it has the byte alone",
        "participants.hpp",
        "if (marked_active(slot) && detail::set_lock(fd, F_RDLCK, byte_of(slot), 1)) {",
        "if (marked_active(slot) && detail::set_lock(fd, F_WRLCK, byte_of(slot), 1)) {",
        "test_participants",
    ),
    NativeMutant(
        "lock-believed",
        "a lock is believed through any number",
        "participants.hpp",
        """if (still_ours() && detail::set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {
            if (proven()) return true;""",
        "if (detail::set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {\n            return true;",
        "test_participants",
    ),
    NativeMutant(
        "no-signature",
        "another description of the same file passes for ours",
        "segment.hpp",
        "::lseek(fd, 0, SEEK_CUR) == signature",
        "signature != 0",
        "test_participants",
    ),
    NativeMutant(
        "strangers-closed",
        "a segment closes its number although it is a stranger's by now",
        "segment.hpp",
        "if (!has_descriptor()) fd_.release();",
        "",
        "test_participants",
    ),
    NativeMutant(
        "child-shares",
        "the child of a fork keeps the shared mapping",
        "segment.hpp",
        "const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;",
        "const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;",
        "test_participants",
    ),
    NativeMutant(
        "contention-is-damage",
        "one who loses every race is told that the queue is damaged",
        "queue_state.hpp",
        "return patience.others_get_on(*this) ? Verdict::contended : corrupt(what, position, 0);",
        "return corrupt(what, position, 0);",
        "test_queue_life",
    ),
    NativeMutant(
        "damage-is-contention",
        "a queue in which nobody gets on counts as busy",
        "queue_state.hpp",
        "return patience.others_get_on(*this) ? Verdict::contended : corrupt(what, position, 0);",
        "return Verdict::contended;",
        "test_queue_life",
    ),
    NativeMutant(
        "limit-not-doubled",
        "a put that was fenced is watched as long as the first time",
        "queue.hpp",
        "u64{stall_limit_ms} << doublings",
        "u64{stall_limit_ms}",
        "test_queue_life",
    ),
    NativeMutant(
        "limit-forgotten",
        "any put that gets through makes the queue forget how often another was fenced",
        "queue.hpp",
        "} else if (verdict == Verdict::ok && length >= fenced_length_) {",
        "} else if (verdict == Verdict::ok) {",
        "test_queue_life",
    ),
    NativeMutant(
        "fences-are-deliveries",
        "how often a put was fenced stays in the mark",
        "queue.hpp",
        "if (fenced_in_a_row_ != 0) stamp(claim.position, payloads.size() == 1 ? length : 0, 0);",
        "",
        "test_queue_life",
    ),
    NativeMutant(
        "count-before-the-swap",
        "recovery writes the count down before the exchange that may fail",
        "queue_recovery.hpp",
        "becomes = Geometry::returned(word, q.deliveries_with_this(position));",
        """q.stamp(position, q.geometry.length(word), q.deliveries_with_this(position));
                becomes = Geometry::returned(word, q.deliveries_with_this(position));""",
        "test_queue_life",
    ),
)

LAYOUT, TABLE = "queue_layout.hpp", "participants.hpp"
LAYOUTS = tuple(
    NativeMutant(name, "two builds would misread each other", *change)
    for name, change in {
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
        "locks-elsewhere": (TABLE, "off_t{1} << 40;", "off_t{1} << 39;"),
        "block-magic": ("block.hpp", "kBlockMagic = 0x4648;", "kBlockMagic = 0x4649;"),
    }.items()
)

Verdicts = dict[str, "Future[subprocess.CompletedProcess[str]]"]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdicts]:
    """All of them, two at a time; the unchanged layout's fingerprint as well."""
    show = tmp_path_factory.mktemp("fingerprint") / "show.cpp"
    show.write_text(
        '#include <cstdio>\n#include "holdfast/queue_layout.hpp"\n'
        "constexpr holdfast::u64 print = holdfast::queue_fingerprint();\n"
        'int main() { std::printf("%llx\\n", static_cast<unsigned long long>(print)); }\n'
    )
    with ThreadPoolExecutor(2) as pool:
        found = {each.name: pool.submit(run_over, each, source_of(each)) for each in MUTANTS}
        found[""] = pool.submit(run_over, None, show)
        found |= {each.name: pool.submit(run_over, each, show) for each in LAYOUTS}
        yield found


def source_of(mutant: NativeMutant) -> Path:
    return ROOT / f"native/tests/{mutant.program}.cpp"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: NativeMutant, verdicts: Verdicts) -> None:
    done = verdicts[mutant.name].result()
    assert done.returncode != 0, f"it survived: {mutant.breaks}"
    print(done.stderr)


def test_every_change_of_the_layout_changes_the_fingerprint(verdicts: Verdicts) -> None:
    prints = {}
    for name in ("", *(each.name for each in LAYOUTS)):
        done = verdicts[name].result()
        assert done.returncode == 0, done.stderr
        prints[name] = done.stdout
    same = [name for name, value in prints.items() if name and value == prints[""]]
    assert same == [], "a change of the layout that two builds would not notice"
    assert len(set(prints.values())) == len(prints)
