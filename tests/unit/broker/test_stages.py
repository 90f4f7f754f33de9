"""The exactly-once sink: invisible stages, and the event that makes them visible."""

from __future__ import annotations

import pytest

from holdfast.broker.events import (
    LedgerRoll,
    SinkCommit,
    SinkForget,
    StageAppend,
    Staged,
    StageDrop,
    StageOpen,
    SubscriptionCreate,
    TopicDelete,
    TopicTerminate,
    stage_digest,
)
from holdfast.broker.events.stages import SPILL_BYTES
from holdfast.broker.state import TopicState
from holdfast.errors import Corrupt, HoldfastError, Misuse, NotFound, Terminated
from tests.kit.broker.events import ME, SECOND, Publish, Rig, frame_of, refused

ONE, TWO, THREE = (bytes([n]) * 16 for n in (1, 2, 3))
LARGE = [bytes(1000)] * 100
Receipt = tuple[bytes, int, int, int]


@pytest.fixture
def topic(rig: Rig) -> TopicState:
    return rig.topic("orders")


@pytest.fixture
def other(rig: Rig) -> TopicState:
    return rig.topic("invoices")


def staged(rig: Rig, stage: bytes, topic: TopicState, entries: list[bytes]) -> Receipt:
    """Open a stage if need be, append, and take the receipt."""
    rig.do(StageOpen(stage))
    parts = rig.machine.state.stages[stage].topics
    at = parts[topic.id].count if topic.id in parts else 0
    done = rig.do(StageAppend(stage, topic.id, at, entries))
    return stage, topic.id, done.count, done.digest


def test_nobody_sees_a_stage(rig: Rig, topic: TopicState) -> None:
    receipt = staged(rig, ONE, topic, [b"a", b"b"])
    assert receipt == (ONE, topic.id, 2, stage_digest([b"a", b"b"]))
    staged(rig, TWO, topic, LARGE)
    assert rig.last is not None
    assert rig.last.tails == []
    assert rig.machine.state.topics[topic.id].ledgers.end == 0
    assert rig.do(SubscriptionCreate(topic.id, "s", -1)).acked_to == 0


def test_commit_shows_all_topics_at_once(rig: Rig, topic: TopicState, other: TopicState) -> None:
    receipts = [staged(rig, ONE, topic, [b"a", b"b"]), staged(rig, ONE, other, [b"c"])]
    receipts.append(staged(rig, TWO, topic, [b"d"]))
    assert rig.do(SinkCommit("query/sink", 0, receipts)).committed
    assert rig.last is not None
    assert rig.last.tails == [(topic.id, 3), (other.id, 1)]
    assert rig.last.last_d - rig.last.first_d == 0  # one event
    assert not rig.state.stages
    (info,) = topic.ledgers
    assert (info.entries, info.sealed, info.file) == (3, False, info.id)


def test_the_order_is_that_of_the_receipts(rig: Rig, topic: TopicState) -> None:
    one, two = staged(rig, ONE, topic, [b"1", b"2"]), staged(rig, TWO, topic, [b"3"])
    while rig.machine.log.take_round():
        pass
    rig.machine.apply(rig.view, rig.index + 1, ME, frame_of([SinkCommit("k", 0, [two, one])], rig.time))
    taken = rig.machine.log.take_round()
    assert taken is not None
    ((ledger, _, data, _, _),) = taken.writes
    assert ledger == 1
    places = [data.find(each) for each in (b"3", b"1", b"2")]
    assert places == sorted(places)


class TestTwice:
    def test_the_same_batch(self, rig: Rig, topic: TopicState) -> None:
        event = SinkCommit("k", 7, [staged(rig, ONE, topic, [b"a"])])
        assert rig.do(event).committed
        d = rig.machine.log.next_d
        again = rig.do(event)
        assert (again.committed, again.batch) == (False, 7)
        assert rig.machine.log.next_d == d  # nothing to drop: nothing to remember
        assert topic.ledgers.end == 1

    def test_a_batch_that_was_computed_again(self, rig: Rig, topic: TopicState) -> None:
        """Its stages are others, and are dropped."""
        rig.do(SinkCommit("k", 7, [staged(rig, ONE, topic, [b"a"])]))
        for batch in (7, 3):
            late = [staged(rig, TWO, topic, LARGE), staged(rig, THREE, topic, [b"a"])]
            assert not rig.do(SinkCommit("k", batch, late)).committed
            assert not rig.state.stages
        assert topic.ledgers.end == 1
        assert len(rig.machine.capture().ledgers) == 1  # not those of what was spilled

    def test_other_sinks_and_later_batches(self, rig: Rig, topic: TopicState) -> None:
        for number, (key, batch) in enumerate([("a", 5), ("b", 5), ("a", 6), ("a", 9)]):
            receipt = staged(rig, bytes([number]) * 16, topic, [b"x"])
            assert rig.do(SinkCommit(key, batch, [receipt])).committed
        assert topic.ledgers.end == 4

    def test_an_empty_batch_counts(self, rig: Rig, topic: TopicState) -> None:
        assert rig.do(SinkCommit("k", 1, [])).committed
        assert not rig.do(SinkCommit("k", 1, [staged(rig, ONE, topic, [b"a"])])).committed


class TestRefused:
    def test_a_missing_stage(self, rig: Rig, topic: TopicState) -> None:
        good = staged(rig, ONE, topic, [b"a"])
        refused(rig, SinkCommit("k", 0, [good, (TWO, topic.id, 1, 1)]), NotFound, TWO.hex())
        assert rig.do(SinkCommit("k", 0, [good])).committed
        refused(rig, SinkCommit("k", 1, [good]), NotFound)

    @pytest.mark.parametrize("change", [(0, 1), (1, 0), (-1, 0)])
    def test_another_content(self, rig: Rig, topic: TopicState, change: tuple[int, int]) -> None:
        stage, where, count, digest = staged(rig, ONE, topic, LARGE)
        good = staged(rig, TWO, topic, [b"x"])
        bad = (stage, where, count + change[0], digest + change[1])
        refused(rig, SinkCommit("k", 0, [good, bad]), Corrupt, "receipt")

    def test_more_was_appended_since(self, rig: Rig, topic: TopicState) -> None:
        receipt = staged(rig, ONE, topic, [b"a"])
        staged(rig, ONE, topic, [b"b"])
        refused(rig, SinkCommit("k", 0, [receipt]), Corrupt)

    def test_a_topic_that_cannot_take_it(self, rig: Rig, topic: TopicState, other: TopicState) -> None:
        receipts = [staged(rig, ONE, topic, [b"a"]), staged(rig, ONE, other, [b"b"])]
        rig.do(TopicTerminate(other.id))
        refused(rig, SinkCommit("k", 0, receipts), Terminated)
        refused(rig, StageAppend(ONE, other.id, 1, [b"c"]), Terminated)
        rig.do(TopicDelete(other.id))
        refused(rig, SinkCommit("k", 0, receipts), NotFound)
        assert topic.ledgers.end == 0

    def test_a_stage_in_part(self, rig: Rig, topic: TopicState, other: TopicState) -> None:
        receipt = staged(rig, ONE, topic, [b"a"])
        staged(rig, ONE, other, [b"b"])
        refused(rig, SinkCommit("k", 0, [receipt]), Misuse, "name them all")

    def test_a_stage_twice(self, rig: Rig, topic: TopicState) -> None:
        receipt = staged(rig, ONE, topic, [b"a"])
        refused(rig, SinkCommit("k", 0, [receipt, receipt]), Misuse, "twice")

    def test_nonsense(self, rig: Rig, topic: TopicState) -> None:
        refused(rig, SinkCommit("", 0, []), Misuse)
        refused(rig, StageOpen(b"short"), Misuse)
        refused(rig, StageAppend(ONE, topic.id, 0, [b"a"]), NotFound, "no stage")
        rig.do(StageOpen(ONE))
        refused(rig, StageAppend(ONE, 99, 0, [b"a"]), NotFound)


def test_appends_can_be_asked_again(rig: Rig, topic: TopicState) -> None:
    staged(rig, ONE, topic, [b"a", b"b"])
    event = StageAppend(ONE, topic.id, 2, [b"c"])
    assert rig.do(event) == rig.do(event) == Staged(3, stage_digest([b"a", b"b", b"c"]))
    refused(rig, StageAppend(ONE, topic.id, 2, [b"c", b"d"]), Misuse, "3 entries")
    refused(rig, StageAppend(ONE, topic.id, 5, [b"c"]), Misuse)


# -- large ones ----------------------------------------------------------------------------------------


def test_large_stages_become_ledgers(rig: Rig, topic: TopicState) -> None:
    """Ids rise along a topic, even if an adopted file is older (I40, I48)."""
    receipt = staged(rig, ONE, topic, LARGE)
    more = staged(rig, ONE, topic, LARGE)
    assert more[2] == 200
    part = rig.machine.state.stages[ONE].topics[topic.id]
    assert part.hidden
    assert part.entries == []
    rig.filled(topic, 10, ledgers=2)
    small = staged(rig, TWO, topic, [b"s"])
    files = [each.file for each in topic.ledgers]
    assert part.file < min(files)
    rig.time += SECOND
    assert rig.do(SinkCommit("k", 0, [more, small])).committed
    assert receipt[2] == 100
    infos = list(topic.ledgers)
    assert [(each.first, each.entries, each.sealed) for each in infos] == [
        (0, 5, True),
        (5, 6, True),  # what is small comes first
        (11, 200, True),
    ]
    assert infos[-1].file == part.file
    assert infos[-1].id > infos[-2].id
    assert infos[-1].opened_time == rig.machine.log.time
    assert topic.ledgers.id_of(11).ledger == infos[-1].id
    assert rig.machine.capture().ledgers[part.file] == (infos[-1].size, 200)
    rig.filled(topic, 1)
    assert topic.ledgers.last is not None
    assert topic.ledgers.last.id > infos[-1].id
    assert topic.ledgers.end == 212


def test_it_spills_when_it_grows(rig: Rig, topic: TopicState) -> None:
    for at in range(SPILL_BYTES // 8192 + 2):
        receipt = staged(rig, ONE, topic, [bytes([at]) * 8192])
        spilled = (at + 1) * 8192 > SPILL_BYTES
        assert bool(rig.machine.state.stages[ONE].topics[topic.id].hidden) is spilled
    assert rig.do(SinkCommit("k", 0, [receipt])).committed
    assert topic.ledgers.end == SPILL_BYTES // 8192 + 2


def test_several_large_ones_in_one_commit(rig: Rig, topic: TopicState, other: TopicState) -> None:
    receipts = [staged(rig, stage, where, LARGE) for stage in (ONE, TWO, THREE) for where in (other, topic)]
    assert rig.do(SinkCommit("k", 0, receipts)).committed
    assert rig.last is not None
    assert sorted(rig.last.tails) == [(topic.id, 300), (other.id, 300)]
    assert len(topic.ledgers) == len(other.ledgers) == 3


# -- giving up -----------------------------------------------------------------------------------------


def test_drop(rig: Rig, topic: TopicState) -> None:
    staged(rig, ONE, topic, LARGE)
    file = rig.machine.state.stages[ONE].topics[topic.id].file
    assert rig.do(StageDrop(ONE)).changed
    assert file not in rig.machine.capture().ledgers
    assert rig.do(StageDrop(ONE)).changed is False
    receipt = staged(rig, TWO, topic, LARGE)
    rig.do(SinkCommit("k", 0, [receipt]))
    assert rig.do(StageDrop(TWO)).changed is False  # it is committed: its ledger stays
    assert topic.ledgers.end == 100


def test_orphans_go_by_age(rig: Rig, topic: TopicState) -> None:
    staged(rig, ONE, topic, [b"a"])
    rig.time += 10 * SECOND
    staged(rig, TWO, topic, [b"a"])
    middle = rig.time - SECOND
    rig.time += SECOND
    assert rig.do(StageDrop(ONE, older_than=middle)).changed
    assert not rig.do(StageDrop(TWO, older_than=middle)).changed
    assert list(rig.state.stages) == [TWO]


def test_old_sinks_are_forgotten(rig: Rig) -> None:
    rig.do(SinkCommit("old", 3, []))
    rig.time += 10 * SECOND
    rig.do(SinkCommit("new", 3, []))
    assert rig.do(SinkForget(older_than=rig.time - SECOND)).changed
    assert not rig.do(SinkForget(older_than=rig.time - SECOND)).changed
    assert list(rig.state.sinks.last) == ["new"]


# -- restarts ------------------------------------------------------------------------------------------


def test_stages_survive(rig: Rig, topic: TopicState, other: TopicState) -> None:
    """A commit finds entries staged before a restart, from journal or snapshot (I47)."""
    receipts = [
        staged(rig, ONE, topic, [b"a"]),
        staged(rig, TWO, topic, LARGE),
        staged(rig, THREE, other, [b"b"]),
    ]
    snapshot, journal = rig.machine.capture().parts, len(rig.journal)
    rig.filled(topic, 3)
    rig.do(LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
    for machine in (rig.restarted(), rig.restarted(snapshot, journal)):
        assert machine.digest() == rig.machine.digest()
        again = Rig(machine)
        assert again.do(SinkCommit("k", 0, receipts)).committed
        assert again.machine.state.topics[topic.id].ledgers.end == 104
        assert not again.do(SinkCommit("k", 0, receipts)).committed


def test_commits_survive(rig: Rig, topic: TopicState) -> None:
    receipts = [staged(rig, ONE, topic, LARGE), staged(rig, TWO, topic, [b"a"])]
    before, journal = rig.machine.capture().parts, len(rig.journal)
    rig.do(SinkCommit("k", 0, receipts))
    after = rig.machine.capture().parts
    for machine in (rig.restarted(), rig.restarted(before, journal), rig.restarted(after, len(rig.journal))):
        assert machine.digest() == rig.machine.digest()
        again = Rig(machine)
        assert not again.do(SinkCommit("k", 0, receipts)).committed
        session = again.filled(again.machine.state.topics[topic.id], 1)
        assert again.machine.state.topics[topic.id].ledgers.end == 102
        with pytest.raises(HoldfastError):
            again.do(Publish(topic.id, session, [b"x"], producer="nobody"))
