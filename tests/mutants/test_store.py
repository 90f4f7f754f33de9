"""Broken stores that the suite must notice; each names the check that catches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast._core import Round
from holdfast.errors import HoldfastError
from holdfast.ledger import recovery
from holdfast.ledger.failures import FailureRecovery
from holdfast.ledger.journal import scan as journal
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.journal.scan import End, Ending
from holdfast.ledger.layout import PAGE, Place
from holdfast.ledger.recovery import Recovery
from holdfast.ledger.running import Running
from holdfast.ledger.writer import RoundWriter
from tests.kit.ledger import checks, doctor_checks
from tests.kit.ledger.sim_store import SimWriter
from tests.kit.ledger.store_world import Life, SystemWorld, simulated
from tests.kit.ledger.torn import Rounds
from tests.kit.sim.disk import SimFile

SEEDS = range(1, 9)
"""The seeds of tests/simulation/test_store.py in `make check`; 7 is the first to find every mutant."""


def caught(check: Callable[[int], object]) -> None:
    """Require that a check fails for some seed."""
    for seed in SEEDS:
        try:
            check(seed)
        except (AssertionError, HoldfastError, OSError, KeyError, pytest.fail.Exception):
            return
    pytest.fail("nothing noticed it")


def storms(seed: int) -> None:
    checks.power_cuts(seed, "group")


def test_without_a_mutant_nothing_is_caught(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="nothing noticed"):
        caught(storms)


# -- the order of writes ------------------------------------------------------------------------------


def test_a_snapshot_before_the_ledgers_are_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """I37; caught by checks.power_cuts."""

    async def nothing(self: Running, next_ledger: int) -> None:
        pass

    monkeypatch.setattr(Running, "_sync_ledgers", nothing)
    caught(storms)


def test_visible_before_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """I33; caught by checks.power_cuts."""
    sync_journal = SimWriter._sync_journal

    async def unsynced(self: SimWriter, found: Round) -> None:
        assert isinstance(self._journal, SimFile)

        async def sync() -> None:
            pass

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._journal, "sync", sync)
            await sync_journal(self, found)

    monkeypatch.setattr(SimWriter, "_sync_journal", unsynced)
    caught(storms)


def test_visible_before_the_ledgers_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """I33: reported when the journal is synced; a reader then finds nothing."""
    write_round = SimWriter._write_round

    async def early(self: SimWriter, found: Round) -> None:
        self._durable_d = found.settled_d
        self._told()
        await write_round(self, found)

    monkeypatch.setattr(SimWriter, "_write_round", early)
    caught(storms)


def test_dropping_the_journal_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """I39; caught by checks.power_cuts."""
    drop = JournalRotation.drop

    async def eager(self: JournalRotation, before: int) -> None:
        await drop(self, self.number)

    monkeypatch.setattr(JournalRotation, "drop", eager)
    caught(storms)


def test_a_journal_file_that_is_named_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by checks.closed_at_every_step_of_its_start."""

    async def early(self: JournalRotation, writer: RoundWriter) -> None:
        self._start = Place(self.number + 1, PAGE)
        self._used = [self._start.journal]
        self._open[self.number] = await self.files.create(self.number)
        writer.use_journal(self._open[self.number], PAGE)

    monkeypatch.setattr(JournalRotation, "begin", early)
    with simulated(1) as world, pytest.raises(FileNotFoundError, match="journal"):
        checks.closed_at_every_step_of_its_start(world, monkeypatch)


def test_dropping_the_journal_of_the_older_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """I39; caught by damaging the newest snapshot."""
    drop = Running._drop

    async def eager(self: Running, before: object) -> None:
        kept = list(self.opened.kept)
        self.opened.kept[:] = kept[-1:]
        await drop(self, before)  # type: ignore[arg-type]
        self.opened.kept[:] = kept

    monkeypatch.setattr(Running, "_drop", eager)
    with pytest.raises((HoldfastError, AssertionError)):
        checks.a_damaged_snapshot_after_a_trim_costs_nothing(SystemWorld(tmp_path, native=True))


def test_recovery_that_does_not_sync_what_it_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """I31, I33; caught by checks.a_kill_and_then_a_power_cut."""

    async def nothing(self: Recovery) -> None:
        pass

    monkeypatch.setattr(Recovery, "_sync", nothing)
    caught(checks.a_kill_and_then_a_power_cut)


# -- damage and tails ---------------------------------------------------------------------------------


def test_a_gap_below_the_durable_position_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """I31; caught by checks.every_bit_of_an_earlier_round_header."""
    judge = journal.judge

    def mild(*facts: int) -> End:
        outcome = judge(*facts)  # type: ignore[arg-type]
        return End.TORN if outcome is End.DAMAGED else outcome

    monkeypatch.setattr(journal, "judge", mild)
    with pytest.raises(AssertionError):
        checks.every_bit_of_an_earlier_round_header(Rounds(tmp_path))


def test_everything_odd_is_called_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail is not damage; caught by checks.power_cuts."""
    judge = journal.judge

    def strict(*facts: int) -> End:
        outcome = judge(*facts)  # type: ignore[arg-type]
        return End.DAMAGED if outcome is End.TORN else outcome

    monkeypatch.setattr(journal, "judge", strict)
    caught(storms)


def test_what_is_cut_is_not_wiped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """I32; caught by checks.what_stood_behind_a_cut_never_comes_back."""

    async def nothing(disk: object, places: list[Place]) -> None:
        pass

    monkeypatch.setattr(recovery, "wipe", nothing)
    with pytest.raises((AssertionError, KeyError)):
        checks.what_stood_behind_a_cut_never_comes_back(tmp_path)


def test_a_spare_is_used_with_its_old_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by checks.power_cuts."""
    use = JournalFiles._use

    async def careless(self: JournalFiles, spare: str, path: str, number: int) -> object:
        await self._disk.rename(spare, path)
        await self._disk.sync_directory("journal")
        await self._disk.rename(path, spare)
        return await use(self, spare, path, number)

    monkeypatch.setattr(JournalFiles, "_use", careless)
    caught(storms)


# -- failures -----------------------------------------------------------------------------------------


def sweep_syncs(_: int) -> None:
    checks.the_nth_call_fails("sync", 5)


def test_a_failed_sync_of_a_ledger_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """I35; caught by checks.the_nth_call_fails."""

    async def again(
        self: FailureRecovery, ledger: int, by: Callable[[], Awaitable[None]], *_: object
    ) -> None:
        try:
            await by()
        except OSError:
            await by()

    monkeypatch.setattr(FailureRecovery, "sync_ledger", again)
    caught(sweep_syncs)


def test_a_failed_sync_of_the_journal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """I34; caught by checks.a_power_cut_after_a_failed_sync_of_the_journal."""

    async def retried(self: SimWriter, found: Round) -> None:
        try:
            await sync_journal(self, found)
        except Exception:
            assert self._journal is not None
            await self._journal.sync()
            self._offset += self._space
            self._journal_written = self._journal_synced = True

    sync_journal = SimWriter._sync_journal
    monkeypatch.setattr(SimWriter, "_sync_journal", retried)
    caught(checks.a_power_cut_after_a_failed_sync_of_the_journal)


def test_recovery_that_trusts_a_sync_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """I31; caught by checks.a_sync_that_failed_before_a_restart."""

    async def nothing(file: object, offset: int, size: int) -> None:
        pass

    monkeypatch.setattr(recovery, "write_again", nothing)
    caught(checks.a_sync_that_failed_before_a_restart)


@pytest.mark.parametrize("moved", [1, 2], ids=["torn", "damaged"])
def test_a_torn_file_is_told_as_the_one_before(
    moved: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As it was; caught by doctor_checks."""

    async def work(life: Life) -> None:
        for number in range(10):
            await life.until(life.mixture(number))

    SystemWorld(tmp_path, native=True).live(work, close=False)
    monkeypatch.setattr(Ending, "wrong", property(lambda self: self.stopped))
    with pytest.raises(AssertionError):
        doctor_checks.a_torn_first_round_is_named_with_its_own_file(tmp_path, moved)
