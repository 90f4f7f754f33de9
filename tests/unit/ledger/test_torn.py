"""Torn tails are cut and damage is reported, at every byte and bit.

The directory is made once, with real files. Each damage is done to a copy of it in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.errors import Corrupt
from holdfast.ledger.journal.scan import End, JournalScan, judge, parse_frames, parse_round
from holdfast.ledger.layout import (
    FILE_HEADER,
    FORMAT,
    LEDGERS,
    PAGE,
    SNAPSHOTS,
    Place,
    journal_path,
)
from holdfast.system import SystemDisk
from tests.kit.ledger.checks import (
    every_bit_of_an_earlier_round_header,
    what_stood_behind_a_cut_never_comes_back,
)
from tests.kit.ledger.store_world import Life, SystemWorld
from tests.kit.ledger.torn import (
    BITS,
    ROUND_HEADER,
    Damage,
    MemoryDisk,
    Rounds,
    cuts,
    flips,
    leading_zeros,
    zeros,
)
from tests.kit.slices import pick

STEP = pick(test=5, nightly=1)
"""Distance between the bytes that are tried."""


@pytest.fixture(scope="module")
def rounds(shared_path: Path) -> Rounds:
    return Rounds(shared_path / "rounds")


def test_the_directory_is_what_the_tests_think(rounds: Rounds) -> None:
    assert len(rounds.places) == 6
    assert rounds.open() == (12, rounds.states[12])


# -- the last round -----------------------------------------------------------------------------------


def test_the_last_round_cut_at_every_byte(rounds: Rounds) -> None:
    """I30, I32."""
    offset, size = rounds.places[-1]
    damages = list(cuts(offset, size, step=STEP))
    assert rounds.try_all(damages) == {"up to 10": len(damages)}


def test_the_last_round_zeroed_from_and_up_to_every_byte(rounds: Rounds) -> None:
    offset, size = rounds.places[-1]
    padding = size - len(rounds.content[offset : offset + size].rstrip(b"\0"))
    assert padding < 8
    last = size - padding
    assert rounds.try_all(zeros(offset + last, padding)) == ({"up to 12": padding} if padding else {}), (
        "zeros where there were zeros"
    )
    damages = list(zeros(offset, last, STEP))
    assert rounds.try_all(damages) == {"up to 10": len(damages)}
    damages = list(leading_zeros(offset, size, STEP))
    assert rounds.try_all(damages) == {"up to 10": len(damages)}


def test_every_bit_of_the_last_round(rounds: Rounds) -> None:
    """It is cut as torn: no later round says that it was synced."""
    offset, size = rounds.places[-1]
    seen = rounds.try_all(flips(rounds.content, offset, size))
    assert set(seen) <= {"up to 10", "up to 12"}
    assert seen.get("up to 12", 0) < 8 * BITS, "only in the padding"


# -- what stands before it ----------------------------------------------------------------------------


def test_every_bit_of_an_earlier_round_header(rounds: Rounds) -> None:
    """I31: later rounds say that it was synced."""
    every_bit_of_an_earlier_round_header(rounds)


def test_every_bit_of_an_earlier_frame_header(rounds: Rounds) -> None:
    """I31."""
    offset, _ = rounds.places[2]
    seen = rounds.try_all(flips(rounds.content, offset + ROUND_HEADER, 64))
    assert seen == {"told": 64 * BITS}


def test_every_bit_of_the_journals_header(rounds: Rounds) -> None:
    assert rounds.try_all(flips(rounds.content, 0, FILE_HEADER)) == {"told": FILE_HEADER * BITS}


def test_the_journal_cut_before_its_end(rounds: Rounds) -> None:
    """Rounds that are cut off completely leave no witness: they look as if never written."""
    offset, _ = rounds.places[3]
    seen = rounds.try_all(cuts(offset - 10, 20, step=3))
    assert set(seen) <= {"up to 4", "up to 6"}


def test_a_missing_page_in_the_middle(rounds: Rounds) -> None:
    """I31: zeros over whole rounds before the last are damage."""
    for number in range(5):
        offset, size = rounds.places[number]
        damage = Damage(f"round {number} gone", offset, bytes(size))
        assert rounds.try_all([damage]) == {"told": 1}


def test_rounds_that_changed_places(rounds: Rounds) -> None:
    (first, size), (second, _) = rounds.places[2], rounds.places[3]
    swap = Damage("swapped", second, rounds.content[first : first + size])
    assert rounds.try_all([swap]) == {"told": 1}


def test_a_journal_file_that_is_not_there(rounds: Rounds) -> None:
    files = MemoryDisk.contents(rounds.path)
    del files[journal_path(1)]
    outcome = rounds.open_files(files)
    assert isinstance(outcome, str)
    assert journal_path(1) in outcome


def test_the_file_that_says_what_the_directory_is(rounds: Rounds) -> None:
    content = (rounds.path / FORMAT).read_bytes()
    assert rounds.try_all(flips(content, 0, FILE_HEADER), FORMAT) == {"told": FILE_HEADER * BITS}
    assert rounds.try_all(cuts(0, FILE_HEADER), FORMAT) == {"told": FILE_HEADER}


# -- ledgers and snapshots ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed(shared_path: Path) -> Rounds:
    """Return a closed directory with snapshots after the third round and at the end."""
    made = Rounds(shared_path / "closed", snapshot_after=3)
    made.world.live()
    return made


def newest_snapshots(files: dict[str, bytes]) -> list[str]:
    """Return the paths of the older and the newest snapshot."""
    return sorted(path for path in files if path.startswith(SNAPSHOTS))[-2:]


def test_every_bit_and_byte_of_the_newest_snapshot(closed: Rounds) -> None:
    """The older snapshot and the journal behind it give the same state."""
    files = MemoryDisk.contents(closed.path)
    newest = newest_snapshots(files)[-1]
    content = files[newest]
    damages = [*flips(content, 0, FILE_HEADER + 64)][:: pick(test=3, nightly=1)]
    damages += cuts(0, len(content), step=pick(test=97, nightly=37))
    seen = closed.try_all(damages, newest)
    assert seen == {"up to 12": len(damages)}


def test_both_snapshots_damaged(closed: Rounds) -> None:
    """The journal is enough from the first event on; otherwise damage is reported."""
    files = MemoryDisk.contents(closed.path)
    paths = newest_snapshots(files)
    for path in paths:
        files[path] = files[path][:100] + b"?" + files[path][101:]
    assert closed.open_files(files) == (12, closed.states[12])
    del files[journal_path(1)]
    outcome = closed.open_files(files)
    assert isinstance(outcome, str)
    assert all(path in outcome for path in paths)


def test_a_torn_journal_below_a_damaged_snapshot(closed: Rounds) -> None:
    """I31: the snapshot's name alone says that its events were durable."""
    files = MemoryDisk.contents(closed.path)
    newest = newest_snapshots(files)[-1]
    offset, size = closed.places[-1]
    files[newest] = files[newest][:-1]
    files[journal_path(1)] = Damage("the last round", offset, bytes(size)).to(files[journal_path(1)])
    outcome = closed.open_files(files)
    assert isinstance(outcome, str)
    assert f"{journal_path(1)} at offset {offset}" in outcome


def test_a_ledger_that_is_short_or_gone(closed: Rounds) -> None:
    files = MemoryDisk.contents(closed.path)
    path = f"{LEDGERS}/0000000000000001.data"
    size = len(files[path])
    assert closed.try_all(cuts(0, size, step=17), path) == {"told": len(range(0, size, 17))}
    del files[path]
    outcome = closed.open_files(files)
    assert isinstance(outcome, str)
    assert f"{path} is missing" in outcome


def test_an_index_that_is_short_or_gone_is_made_again(closed: Rounds) -> None:
    path = closed.path / LEDGERS / "0000000000000001.index"
    content = path.read_bytes()
    for end in range(-1, len(content), 5):
        if end < 0:
            path.unlink()
        else:
            path.write_bytes(content[:end])
        closed.world.live(close=False)
        assert path.read_bytes() == content


def test_an_entry_that_is_damaged_is_told_when_it_is_read(closed: Rounds) -> None:
    """I31: recovery does not read ledgers; a reader gets the error, with file and offset."""
    path = closed.path / LEDGERS / "0000000000000001.data"
    content = path.read_bytes()
    path.write_bytes(content[:120] + bytes([content[120] ^ 4]) + content[121:])

    async def use(life: Life) -> None:
        with pytest.raises(Corrupt, match=r"0000000000000001\.data.*offset 64"):
            await life.store.read(1, 0, 0, 10, 1000)
        assert len(await life.store.read(1, 0, 1, 10, 1000)) == 1, "the others are there"

    closed.world.live(use, close=False, check=False)
    path.write_bytes(content)


def test_a_torn_end_of_a_ledger_is_written_again(rounds: Rounds, tmp_path: Path) -> None:
    """Redo repairs ledgers behind the snapshot's sizes: the journal has those entries."""
    copy = tmp_path / "copy"
    shutil.copytree(rounds.path, copy)
    world = SystemWorld(copy, native=True)
    world.oracle = rounds.world.oracle
    for path in sorted((copy / LEDGERS).iterdir()):
        content = path.read_bytes()
        for change in (b"", content[:70], content + b"?" * 500, bytes(len(content)), b"\xff" * 3000):
            path.write_bytes(change)
            world.live(close=False)
            assert path.read_bytes() == content
        path.unlink()
        world.live(close=False)
        assert path.read_bytes() == content


def test_what_stood_behind_a_cut_never_comes_back(tmp_path: Path) -> None:
    """I32: with `sync = os`, whole rounds behind a lost one are void for good."""
    what_stood_behind_a_cut_never_comes_back(tmp_path)


# -- pure functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing_d", "at_zeros", "newer", "synced_d", "snapshot_d", "outcome"),
    [
        (5, True, False, 0, 0, End.CLEAN),
        (5, True, False, 4, 4, End.CLEAN),
        (5, False, False, 0, 0, End.TORN),
        (5, True, True, 4, 0, End.TORN),
        (5, False, True, 5, 0, End.DAMAGED),
        (5, True, True, 5, 0, End.DAMAGED),
        (5, True, False, 0, 5, End.DAMAGED),
        (5, False, False, 4, 9, End.DAMAGED),
    ],
)
def test_the_decision_table(
    missing_d: int, at_zeros: bool, newer: bool, synced_d: int, snapshot_d: int, outcome: End
) -> None:
    assert judge(missing_d, at_zeros, newer, synced_d, snapshot_d) is outcome


def test_a_round_of_another_directory_is_none(rounds: Rounds) -> None:
    """I30: a published payload may look like a round, and is not used as one."""
    offset, size = rounds.places[0]
    data = rounds.content[offset : offset + size]
    header = parse_round(data, rounds.salt)
    assert header is not None
    assert parse_round(data, rounds.salt + 1) is None
    frames = parse_frames(header, data[ROUND_HEADER:])
    assert frames is not None
    assert (frames[0].first_d, frames[-1].last_d) == (1, 2)
    assert parse_frames(header, data[ROUND_HEADER:-8]) is None
    assert parse_frames(header, data[ROUND_HEADER:] + bytes(8)) is None


def test_a_payload_full_of_rounds_is_no_witness(tmp_path: Path) -> None:
    """A torn round is cut, also if its payload is a copy of another journal."""
    (tmp_path / "other").mkdir()
    other = Rounds(tmp_path / "other")
    pages = other.content[: 12 * PAGE]
    world = SystemWorld(tmp_path / "one", native=True)
    world.path.mkdir()

    async def use(life: Life) -> None:
        await life.until(life.add())
        # Shifts, so that one copy's pages are at multiples of 4096 in this journal.
        await life.until(life.publish(1, *(b"-" * shift + pages for shift in range(0, 4096, 512))))

    world.live(use, close=False)
    path = world.path / journal_path(1)
    content = path.read_bytes()
    at = content.rfind(b"HF\3\1", 0, 4 * PAGE)
    path.write_bytes(content[:at] + bytes(96) + content[at + 96 :])
    world.oracle.told = 1
    assert world.live(close=False).recovered.last_d == 1


def test_a_scan_needs_every_file(tmp_path: Path) -> None:
    scan = JournalScan(SystemDisk(tmp_path), bytes(16), [3, 5], Place(3, PAGE), 7, 7)
    with pytest.raises(Corrupt, match=f"{journal_path(4)} is missing"):
        scan._numbers()
    scan = JournalScan(SystemDisk(tmp_path), bytes(16), [4, 5], Place(3, PAGE), 7, 7)
    with pytest.raises(Corrupt, match=f"{journal_path(3)} is missing"):
        scan._numbers()
