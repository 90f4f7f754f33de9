"""Brokers that do not check their files and descriptors: kit/broker/interference.py notices.

The checks of the core's writer have their own mutants (test_core.py: `removed-unseen`, `number-believed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.broker.dispatch.read_loops import Reading
from holdfast.errors import Corrupt, NotFound, Timeout
from holdfast.ledger import running
from holdfast.ledger.failures import FailureRecovery
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.system import disk
from holdfast.system.disk import SystemDisk, SystemLock
from tests.kit.broker import interference
from tests.kit.strangers import move, remove

Patch = pytest.MonkeyPatch


def a_lock_of_its_file_alone(patch: Patch) -> None:
    patch.setattr(SystemLock, "_lock_directory", lambda descriptor: None)


def a_lock_is_believed(patch: Patch) -> None:
    async def held(self: SystemLock) -> bool:
        return True

    patch.setattr(SystemLock, "is_held", held)


def a_path_is_believed(patch: Patch) -> None:
    """Descriptors are checked, and not the file at the path."""

    async def held(self: SystemLock) -> bool:
        return all(map(disk._is_open, self._descriptors, self._files))

    patch.setattr(SystemLock, "is_held", held)


def a_journal_is_believed(patch: Patch) -> None:
    async def lost(self: JournalRotation) -> list[int]:
        return []

    patch.setattr(JournalRotation, "lost", lost)


def no_snapshot_follows(patch: Patch) -> None:
    async def take(self: FailureRecovery) -> bool:
        want, self._want_snapshot = self._want_snapshot, lambda: None
        try:
            return await look(self)
        finally:
            self._want_snapshot = want

    look = FailureRecovery.look_after_journal
    patch.setattr(FailureRecovery, "look_after_journal", take)


def the_old_place_is_kept(patch: Patch) -> None:
    """A snapshot says that recovery starts in the lost file."""

    async def forget(self: JournalRotation, number: int) -> None:
        self._open.pop(number)

    patch.setattr(JournalRotation, "forget", forget)


def names_are_believed(patch: Patch) -> None:
    async def named(self: SystemDisk, path: str, file: object) -> bool:
        return True

    patch.setattr(SystemDisk, "is_named", named)


def nothing_is_rescued(patch: Patch) -> None:
    async def rescue(self: running.Running, ledger: int) -> bool:
        return False

    patch.setattr(running.Running, "rescue", rescue)


def strangers_are_closed(patch: Patch) -> None:
    patch.setattr(disk, "_is_open", lambda descriptor, file: True)


def what_is_gone_is_not_told(patch: Patch) -> None:
    failed = Reading._failed

    def silent(self: Reading, read: object, error: Exception) -> bool:
        return failed(self, read, OSError("not there") if isinstance(error, NotFound) else error)  # type: ignore[arg-type]

    patch.setattr(Reading, "_failed", silent)


@dataclass(frozen=True)
class Noticed:
    """The check that notices a mutant, and its error."""

    check: Callable[[Path], None]
    error: type[BaseException] | tuple[type[BaseException], ...]
    words: str | None = None
    wait_s: float = interference.WAIT_S
    """Less for a mutant that is noticed because something never happens."""


MUTANTS: dict[Callable[[Patch], None], Noticed] = {
    # The second broker opens the directory, or meets files that the first one creates and deletes.
    a_lock_of_its_file_alone: Noticed(
        lambda path: interference.goes_on(path, "lock", remove),
        (pytest.fail.Exception, FileNotFoundError),
        "Locked|journal/",
    ),
    a_lock_is_believed: Noticed(
        lambda path: interference.stops_without_its_lock(path, "lock"), TimeoutError, wait_s=0.3
    ),
    a_path_is_believed: Noticed(interference.stops_without_its_directory, TimeoutError, wait_s=0.3),
    a_journal_is_believed: Noticed(
        lambda path: interference.idle_goes_on(path, move), OSError, "^$|journal/0000000000000001", wait_s=0.3
    ),
    no_snapshot_follows: Noticed(
        lambda path: interference.idle_goes_on(path, remove), TimeoutError, wait_s=0.3
    ),
    the_old_place_is_kept: Noticed(
        lambda path: interference.idle_goes_on(path, remove), OSError, "journal/0000000000000001"
    ),
    names_are_believed: Noticed(
        lambda path: interference.goes_on(path, "journal", move), OSError, "0000000000000001"
    ),
    nothing_is_rescued: Noticed(
        lambda path: interference.goes_on(path, "data", move), Corrupt, "0000000000000001.data"
    ),
    strangers_are_closed: Noticed(
        lambda path: interference.goes_on_without_descriptors(path, "journal", reused=True), OSError
    ),
    what_is_gone_is_not_told: Noticed(interference.tells_what_is_gone, Timeout, wait_s=0.3),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_it_is_noticed(tmp_path: Path, monkeypatch: Patch, mutant: Callable[[Patch], None]) -> None:
    noticed = MUTANTS[mutant]
    interference.look_often(monkeypatch)
    monkeypatch.setattr(interference, "WAIT_S", noticed.wait_s)
    mutant(monkeypatch)
    with pytest.raises(noticed.error, match=noticed.words):
        noticed.check(tmp_path)
