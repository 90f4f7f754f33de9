"""Replacing a directory by a copy: a crash leaves the mark, or all of it."""

from __future__ import annotations

import pytest

from holdfast.errors import Corrupt, Misuse
from holdfast.ledger.copies import Install, next_life, require_file, survey
from holdfast.ledger.files.doctor import examine_disk
from tests.kit.cluster.installing import Two, operations
from tests.kit.sim import SimDisk
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.slices import pick


@pytest.mark.parametrize("survival", [0.0, 1.0, None])
def test_a_crash_at_each_step(survival: float | None) -> None:
    """I231: whichever writes and names survive it."""
    seen = set()
    for step in range(2, operations() + 1, pick(test=max(1, operations() // 8), nightly=1)):
        two = Two(1)
        two.crash_at(step, survival)
        seen.add(two.ending())
        assert (two.ending() != "marked") == two.run(examine_disk(SimDisk(two.target))).sound
        two.run(two.install())  # the next start copies again
        assert two.ending() == "whole"
        assert two.run(examine_disk(SimDisk(two.target))).sound
        two.close()
    assert "marked" in seen


def test_files_that_are_equal_are_not_sent_again() -> None:
    """I234: a second copy sends no ledger."""
    two = Two(1, older=False)
    sent = two.run(two.install())
    again = two.run(two.install())
    ledgers = sum(len(data) for path, data in two.files.items() if path.startswith("ledgers"))
    assert sent - again == ledgers > 1000
    assert two.ending() == "whole"
    two.close()


def test_a_directory_that_is_incomplete_is_not_opened() -> None:
    two = Two(1)
    two.run(Install(SimDisk(two.target)).begin(b"mark", two.incarnation, []))
    found = two.run(survey(SimDisk(two.target)))
    assert (found.fresh, found.mark) == (False, b"mark")
    with pytest.raises(Misuse, match=r"did not end\. Start it as a member"):
        two.run(two._fill(two.target, 1))
    two.close()


@pytest.mark.parametrize("path", ["lock", "../x", "ledgers/x.data", "journal/../lock", "snapshots/", "a/0"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(Corrupt, match="is not a file of a store"):
        require_file(path)


@pytest.mark.parametrize("item", [("/etc/passwd", -1), ("../x", 5), ("journal/0000000000000001", -1)])
def test_paths_and_sizes_are_checked_before_a_file_is_opened(item: tuple[str, int]) -> None:
    """A size below zero was taken for a part that is here."""
    two = Two(1)
    with pytest.raises(Corrupt, match="another member"):
        two.run(Install(SimDisk(two.target)).have(*item))
    two.close()


def lives(two: Two, *times_s: float) -> list[int]:
    random = SeededRandomness(1, "lives")
    return [two.run(next_life(SimDisk(two.target), int(each * 1e9), random)) for each in times_s]


def test_the_number_of_a_life_rises() -> None:
    """Also with another empty directory, and when the clock goes back."""
    two = Two(1)
    first, second = lives(two, 5, 1)
    two.target.wipe()
    (third,) = lives(two, 9)
    assert first < second == first + 1 < third < 1 << 53
    two.close()


def test_empty_directories_of_one_moment_have_different_lives() -> None:
    two, random = Two(1), SeededRandomness(1, "moment")
    found = []
    for _ in range(8):
        two.target.wipe()
        found.append(two.run(next_life(SimDisk(two.target), 5_000_000_000, random)))
    assert len(set(found)) == 8
    two.close()


def test_consecutive_lives_differ_in_the_low_byte() -> None:
    """Ids of views carry it."""
    two = Two(1)
    found = lives(two, *(1 + 0.256 * number for number in range(256)))
    assert len({each & 0xFF for each in found}) == 256
    assert found == sorted(found)
    two.close()


def test_the_number_rises_on_a_full_disk() -> None:
    """A join may make room, so it must begin."""
    two = Two(1)
    (first,) = lives(two, 5)
    two.target.capacity_bytes = two.target.used_bytes()
    (second,) = lives(two, 5)
    two.target.crash()
    (third,) = lives(two, 5)
    assert first < second < third
    two.close()
