"""Broken joins, copies and elections: the tests of joining must notice each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.engine import Engine
from holdfast.cluster import ClusterMember, Hello, election, life, transfer
from holdfast.cluster.relay import Relay
from holdfast.cluster.updating import Update
from holdfast.errors import Closed, HoldfastError
from holdfast.group import Member, Position
from holdfast.ledger import Store
from holdfast.ledger.copies import Install, install
from holdfast.ledger.layout import DIRECTORIES, INCOMPLETE
from holdfast.system import remove
from tests.kit.cluster import storm, updates
from tests.kit.cluster.installing import Two, operations
from tests.kit.cluster.members import (
    copy_from_a_donor_that_was_lost,
    copy_from_the_next_donor,
    copy_that_fails,
    copy_while_files_go,
    copy_without_its_end,
    return_to_a_survivor,
    survivors_whose_list_grows,
)
from tests.kit.cluster.stores import (
    add_nodes,
    drifting_nodes,
    quorate,
    random_nodes,
    remove_nodes,
    require_nothing_lost,
    shorten_list,
    small_worlds,
)
from tests.kit.group.checker import Broken

SEEDS = range(1, 41)
"""Seeds of tests/simulation/test_joining.py in `make test`."""


def caught_by_a_storm() -> None:
    for seed in SEEDS:
        try:
            storm.run(seed, seconds=1.5)
        except (AssertionError, HoldfastError, TimeoutError):
            return
    pytest.fail(f"no storm of {SEEDS} noticed")


def hold_elections() -> None:
    for nodes in (*(random_nodes(seed, 5) for seed in range(400)), *small_worlds()):
        for present in quorate(nodes):
            require_nothing_lost(nodes, present)


def caught_by_an_election() -> None:
    with pytest.raises(AssertionError):
        hold_elections()


def test_resume_after_a_heal_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that comes back goes on from its own directory."""

    async def resume(self: ClusterMember, disk: Any, relay: Relay, hello: Hello) -> None:
        while not relay.elected and not (relay.donors and not hello.fresh and hello.complete):
            if relay.lost is not None:
                raise Closed("lost")
            if relay.donors and await self._copy(disk, relay, relay.donors, None):
                return
            await relay.change()

    monkeypatch.setattr(ClusterMember, "_get_state", resume)
    caught_by_a_storm()


def test_a_store_that_was_served_alone_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that a survivor confirmed alone are lost."""
    monkeypatch.setattr(life, "require_shared", lambda *_: None)
    for nodes, survivors in ((3, [1]), (5, [1, 2])):
        with pytest.raises(pytest.fail.Exception):
            survivors_whose_list_grows(nodes, survivors)


def test_only_a_store_of_one_node_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that two survivors of five confirmed are lost."""
    monkeypatch.setattr(transfer, "knows_more", lambda mine, views: False)
    survivors_whose_list_grows()
    with pytest.raises(pytest.fail.Exception):
        survivors_whose_list_grows(5, [1, 2])


def test_apply_from_the_cut_and_not_from_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that the copy has are applied again."""

    def is_behind(self: Engine, pos: Position) -> bool:
        if pos == self._at:
            self._group.hold(pos)
        return False

    monkeypatch.setattr(Engine, "_is_behind", is_behind)
    caught_by_a_storm()


def test_an_incomplete_store_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_is_witness", lambda hello, candidate: not hello.fresh)
    caught_by_an_election()


def test_a_lost_disk_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_is_witness", lambda hello, candidate: True)
    caught_by_an_election()


def test_elect_by_the_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest store wins, and views are not compared."""
    monkeypatch.setattr(election, "_has_all", lambda *_: True)
    monkeypatch.setattr(election, "_length", lambda hello: hello.last_d)
    caught_by_an_election()


def test_elect_by_the_last_view_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends that differ within one view are not compared."""
    monkeypatch.setattr(election, "_has_all", lambda *_: True)
    caught_by_an_election()


def test_holders_that_may_be_away_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    has_all = election._has_all
    monkeypatch.setattr(
        election,
        "_has_all",
        lambda mine, other, whole, unknown, most: has_all(mine, other, whole, set(), most),
    )
    caught_by_an_election()


def test_a_shorter_list_of_nodes_that_elects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_unlisted", lambda whole, nodes: None)
    with pytest.raises(AssertionError):
        remove_nodes()


def test_a_shorter_list_that_ends_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_earlier_lists", lambda whole: [])
    with pytest.raises(AssertionError):
        shorten_list(drifting_nodes())


def test_added_nodes_that_count_among_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    has_all = election._has_all
    monkeypatch.setattr(
        election,
        "_has_all",
        lambda mine, other, whole, unknown, most: has_all(mine, other, whole, unknown, 3),
    )
    with pytest.raises(AssertionError):
        add_nodes(listed=5)


def test_a_survivor_alone_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_was_alone", election._was_single)
    monkeypatch.setattr(life, "require_shared", lambda *_: None)  # it would see it, too
    with pytest.raises(Broken, match="confirmed and lost"):
        return_to_a_survivor()


def test_a_donor_that_vouches_after_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_require_member", lambda broker: None)
    with pytest.raises(pytest.fail.Exception):
        copy_from_a_donor_that_was_lost()


def test_files_that_are_not_kept_for_a_joiner(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def unpinned(self: Store) -> Any:
        yield self._opened.kept[-1]

    monkeypatch.setattr(Store, "pin", unpinned)
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        copy_while_files_go()


def crash_at_each_step() -> None:
    for step in range(operations(), operations() - 10, -1):
        two = Two(1)
        two.crash_at(step, 0.0)
        two.ending()
        two.close()


def test_the_mark_is_removed_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(self: Install) -> None:
        await self._disk.unlink(INCOMPLETE)
        await self._disk.sync_directory("")
        for directory in DIRECTORIES:
            await self._disk.sync_directory(directory)

    monkeypatch.setattr(Install, "finish", finish)
    with pytest.raises((AssertionError, FileNotFoundError)):
        crash_at_each_step()


def test_a_copy_without_the_donors_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def trusting(*_: object) -> None:
        """Believe that the donor's last events are those of this side."""

    monkeypatch.setattr(transfer, "_marked", trusting)
    with pytest.raises(AssertionError):
        copy_without_its_end()


async def fail_without_a_word(
    self: ClusterMember, disk: Any, relay: Relay, donors: Any, mine: bytes | None
) -> bool:
    """A mutant: the error of a copy that fails is not kept."""
    before: Callable[..., Any] = COPY
    with suppress(Exception):
        if await before(self, disk, relay, donors, mine):
            return True
    self._reason = ""
    return False


COPY = ClusterMember._copy


def test_a_joiner_that_keeps_to_its_first_donor(monkeypatch: pytest.MonkeyPatch) -> None:
    async def faithful(self: ClusterMember, disk: Any, relay: Relay, donors: Any, mine: Any) -> bool:
        first = [each for each in donors if each.node == self._progress.donor]
        return await COPY(self, disk, relay, first or donors[:1], mine)

    monkeypatch.setattr(ClusterMember, "_copy", faithful)
    with pytest.raises(AssertionError, match="stands still"):
        copy_from_the_next_donor()


def test_a_copy_that_fails_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterMember, "_copy", fail_without_a_word)
    with pytest.raises(AssertionError):
        copy_that_fails()


# -- topic by topic ------------------------------------------------------------------------------------


def caught_by(scene: Callable[[], None]) -> None:
    with pytest.raises((AssertionError, HoldfastError, OSError)):
        scene()


def test_a_topic_that_is_served_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are not told which topics are not ready."""

    async def begin(self: Update) -> None:
        self._begun = True

    monkeypatch.setattr(Update, "begin", begin)
    caught_by(updates.owns_nothing_before)


def test_ledgers_that_are_read_before_they_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_require_here", lambda *_: None)
    caught_by(updates.reads_say_why)


def test_a_member_that_holds_before_it_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Update.__init__

    def complete(self: Update, broker: Broker, *more: Any) -> None:
        begin(self, broker, *more)
        broker.engine.completed()

    monkeypatch.setattr(Update, "__init__", complete)
    caught_by(updates.holds_nothing_before)


def test_a_mark_that_is_removed_while_ledgers_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete store is elected, or opened, after a power cut."""
    settle = Install.settle

    async def unmark(self: Install) -> None:
        await settle(self)
        await remove(self._disk, INCOMPLETE)

    monkeypatch.setattr(Install, "settle", unmark)
    monkeypatch.setattr(Install, "finish", unmark)
    caught_by(updates.the_mark_stays)


def test_a_ledger_without_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "crc32c", lambda data, crc=0: 0)
    monkeypatch.setattr(transfer, "crc32c", lambda data, crc=0: 0)
    caught_by(updates.damaged_on_the_way)


def test_an_update_that_keeps_to_its_first_donor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A donor that dies is not replaced."""
    donors = Relay.__dict__["donors"].fget
    first: list[Member] = []

    def faithful(self: Relay) -> list[Member]:
        found: list[Member] = donors(self)
        first[:] = first or found[:1]
        return [each for each in found if each in first]

    monkeypatch.setattr(Relay, "donors", property(faithful))
    with pytest.raises(TimeoutError):
        updates.the_next_donor_goes_on()


def test_ledgers_that_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Install, path: str, size: int) -> tuple[int, int]:
        return 0, 0

    monkeypatch.setattr(Install, "have", nothing)
    caught_by(updates.nothing_is_sent_again)


def test_names_of_ledgers_that_a_power_cut_takes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Install) -> None: ...

    monkeypatch.setattr(Install, "keep_ledgers", nothing)
    caught_by(updates.nothing_is_sent_again)


def test_frames_that_are_kept_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are dropped, and the journal is not asked for again."""

    async def once(*arguments: Any) -> Any:
        channel, install, relay, progress, needed = arguments
        await transfer._tell(channel, transfer.Tail(*max(needed, relay.dropped)))
        journal = await transfer._hear(channel, transfer.Offer, 10.0)
        assert isinstance(journal, transfer.Offer)
        for item in journal.items:
            await transfer.get(channel, install, item, progress)
        return journal

    monkeypatch.setattr(transfer, "_get_journal", once)
    monkeypatch.setattr(Relay, "_require_no_gap", lambda *_: None)
    with pytest.raises((AssertionError, HoldfastError, OSError)), pytest.MonkeyPatch.context() as more:
        updates.frames_are_bounded(more)
