"""The log through its bindings: effects of a frame, refusals, and an equal redo."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest

from holdfast import Corrupt, Misuse
from holdfast._core import Applied, Log, Round, ledger_header
from tests.kit.ledger.log_bytes import (
    PAGE,
    Event,
    JournalFrame,
    block,
    events_of,
    frame,
    ledger_of,
    publish,
    rounds_of,
)
from tests.kit.slices import seeds

DURABLE, PASSING, APPENDING = 20, 21, 22
"""Kinds of events: one is accepted, one is not, one appends its body to topic 1."""


@pytest.fixture
def log() -> Log:
    """Return a log with topic 1 and an open session 1 of producer p."""
    log = Log()
    log.add_topic(1)
    assert log.open_session(1, 1, "p", 0) == -1
    return log


def apply(log: Log, data: bytes, index: int = 1, redo: bool = False, urgent: bool = True) -> Applied:
    log.begin(data, 3, index, redo)
    while event := log.step():
        if event[0] == APPENDING:
            log.append(1, [event[2]])
        if event[0] != PASSING:
            log.accept()
    return log.finish(urgent)


def take(log: Log) -> Round:
    taken = log.take_round()
    assert taken is not None
    return taken


def frames_of(taken: Round) -> list[JournalFrame]:
    data = taken.journal(taken.first_d - 1, 5, 6, taken.first_d - 1, 99)
    assert len(data) % PAGE == 0
    found = rounds_of(bytes(PAGE) + data, taken.first_d, salt=99)
    assert len(found) == 1
    return found[0]


def entries_of(taken: Round) -> dict[int, list[bytes]]:
    return {
        ledger: ledger_of(data, index, offset, (index_offset - 64) // 8)
        for ledger, offset, data, index_offset, index in taken.writes
    }


def test_publish(log: Log) -> None:
    data = frame(
        [
            publish(1, 1, 0, "p", [(0, 1, b"abc"), (1, 1, b""), (2, 1, b"x" * 5000)]),
            publish(1, 1, 0, "p", [(3, 1, b"later")]),
        ]
    )
    applied = apply(log, data, 8)
    assert applied.published == [(0, 0, 1, 0, 0, 3, None), (1, 0, 1, 3, 3, 1, None)]
    assert (applied.first_d, applied.last_d, log.next_d, log.next_ledger) == (1, 2, 3, 2)
    assert applied.opened == [(1, 1, 0)]
    size = 64 + 40 + 32 + 5032 + 40
    assert applied.tails == [(1, 4, 1, 0, 4, size, 7)]
    assert log.tail(1) == (4, 1, 0, 4, size)
    assert log.pending_bytes > 5000
    taken = take(log)
    assert (taken.first_d, taken.last_d, taken.settled_d, taken.urgent) == (1, 2, 2, True)
    assert frames_of(taken) == [JournalFrame(1, 3, 8, 7, data)]
    assert entries_of(taken) == {1: [b"abc", b"", b"x" * 5000, b"later"]}
    assert log.take_round() is None
    del taken
    assert log.pending_bytes == 0


def test_duplicates(log: Log) -> None:
    log.set_topic(1, deduplicate=True)
    apply(log, frame([publish(1, 1, 0, "p", [(0, 1, b"a"), (1, 4, b"b")])]))
    assert log.sequences(1) == [("p", 4)]
    applied = apply(
        log,
        frame(
            [
                publish(1, 1, 0, "p", [(1, 4, b"b"), (4, 1, b"x"), (5, 1, b"c"), (5, 9, b"d")]),
                publish(1, 1, 0, "p", [(0, 1, b"a"), (5, 1, b"c")]),
            ]
        ),
    )
    assert applied.published == [(0, 0, 1, 2, 2, 1, [0, 1, 3]), (1, 0, 0, 0, 0, 0, [0, 1])]
    assert (applied.first_d, applied.last_d) == (2, 2)  # the second one takes no D
    assert [len(events_of(each.frame)) for each in frames_of(take(log))] == [1, 1]
    log.close_session(1)
    assert log.open_session(2, 1, "p", 0) == 5
    assert log.forget_sequence(1, "p")
    assert not log.forget_sequence(1, "p")
    log.set_sequence(1, "ä", 7)
    assert log.open_session(3, 1, "ä", 0) == 7
    assert log.sequences(1) == [("ä", 7)]
    log.set_topic(1, deduplicate=False)
    assert log.sequences(1) == []


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (publish(1, 1, 2, "p", [(0, 1, b"x")]), 0),
        (publish(9, 1, 2, "p", [(0, 1, b"x")]), 1),
        (publish(2, 2, 0, "p", [(0, 1, b"x")]), 2),
        (publish(1, 7, 2, "p", [(0, 1, b"x")]), 3),
        (publish(1, 1, 1, "p", [(0, 1, b"x")]), 3),
        (publish(1, 1, 2, "q", [(0, 1, b"x")]), 3),
        (publish(1, 2, 0, "p", [(0, 1, b"x")]), 3),
        (publish(1, 3, 2, "p", [(0, 1, b"x")]), 3),
        (publish(1, 4, 1, "p", [(0, 1, b"x")]), 3),
    ],
    ids=["ok", "topic", "closed", "unknown", "epoch", "name", "other topic", "left", "overtaken"],
)
def test_refusals(event: Event, code: int) -> None:
    log = Log()
    log.add_topic(1)
    log.add_topic(2)
    log.open_session(4, 1, "p", 1)
    log.open_session(1, 1, "p", 2)
    log.open_session(2, 2, "p", 0)
    log.set_topic(2, closed=True)
    log.open_session(3, 1, "p", 2)
    log.close_session(3)
    applied = apply(log, frame([event]))
    assert [row[:2] for row in applied.published] == [(0, code)]
    assert bool(applied.first_d) == bool(log.pending_bytes) == (code == 0)
    # A redo needs no session: the event was accepted once.
    if code > 1:
        assert apply(log, frame([event]), redo=True).published[0][1] == 0


def test_a_redo_of_another_history_is_refused() -> None:
    with pytest.raises(Corrupt, match="topic 3, which does not exist"):
        apply(Log(), frame([publish(3, 1, 0, "p", [(0, 1, b"x")])]), redo=True)


def test_what_is_refused_is_not_journaled(log: Log) -> None:
    events = [
        (DURABLE, 1, b"one"),
        (PASSING, 1, b"not durable"),
        publish(1, 1, 0, "p", [(0, 1, b"e")]),
        publish(8, 1, 0, "p", [(0, 1, b"lost")]),
        (APPENDING, 3, b"f"),
        (PASSING, 1, b""),
    ]
    applied = apply(log, frame(events, time=50))
    assert (applied.first_d, applied.last_d) == (1, 3)
    assert apply(log, frame([(PASSING, 1, b"")], time=90)).first_d == 0
    assert apply(log, frame([(DURABLE, 1, b"two")], time=40)).first_d == 4
    assert log.time == 50  # of the kept events
    first, second = frames_of(take(log))
    assert first.frame == frame([events[0], events[2], events[4]], time=50)
    assert second.frame == frame([(DURABLE, 1, b"two")], time=50)  # the log time: a redo arrives at the same
    assert (first.time, second.time, second.first_d) == (50, 50, 4)


def test_a_frame_without_durable_events_leaves_no_round(log: Log) -> None:
    assert apply(log, frame([(PASSING, 1, b"x")])) == (0, 0, [], [], [])
    assert apply(log, frame([])) == (0, 0, [], [], [])
    assert log.take_round() is None


# -- frames that nobody wrote ---------------------------------------------------------------------------

GOOD = frame(
    [
        publish(1, 1, 0, "p", [(0, 1, b"abc"), (1, 2, b"")]),
        (DURABLE, 1, b"body"),
        publish(1, 1, 0, "p", [(9, 1, b"z")]),
    ]
)


def test_every_truncation_is_corrupt(log: Log) -> None:
    for size in range(len(GOOD)):
        with pytest.raises(Corrupt):
            log.begin(GOOD[:size], 1, 1)
    assert (log.next_d, log.pending_bytes, log.time) == (1, 0, 0)
    assert apply(log, GOOD).last_d == 3


def test_every_changed_byte_is_refused_or_harmless() -> None:
    """A changed frame is Corrupt, or applied with the same size; the journal is sound."""
    for at, value in itertools.product(range(len(GOOD)), (0, 1, 0x7F, 0xFF)):
        log = Log()
        log.add_topic(1)
        log.open_session(1, 1, "p", 0)
        data = GOOD[:at] + bytes([value]) + GOOD[at + 1 :]
        try:
            apply(log, data)
        except Corrupt:
            assert data != GOOD
            assert log.next_d == 1
            continue
        if taken := log.take_round():
            for each in frames_of(taken):
                assert len(events_of(each.frame)) == taken.last_d - taken.first_d + 1
            entries_of(taken)


def test_calls_out_of_order(log: Log) -> None:
    for call in (log.step, log.accept, log.finish, lambda: log.append(1, []), lambda: log.adopt(1, 2)):
        with pytest.raises(Misuse, match="between begin"):
            call()
    log.begin(frame([(DURABLE, 1, b"")]), 1, 1)
    with pytest.raises(Misuse, match="call finish"):
        log.begin(GOOD, 1, 1)
    with pytest.raises(Misuse, match="step"):
        log.accept()
    assert log.step() == (DURABLE, 1, b"")
    log.append(1, [b"x"])
    with pytest.raises(Misuse, match="was not accepted"):
        log.finish()
    assert log.accept() == 1
    with pytest.raises(TypeError):
        log.append(1, ["text"])  # type: ignore[list-item]
    assert log.step() is None
    log.finish()
    for unknown in (
        lambda: log.remove_topic(5),
        lambda: log.set_topic(5, closed=True),
        lambda: log.tail(5),
        lambda: log.open_session(9, 5, "p", 0),
        lambda: log.sequences(5),
    ):
        with pytest.raises(Misuse, match="topic 5"):
            unknown()
    with pytest.raises(Misuse, match="topic 1 is known"):
        log.add_topic(1)
    with pytest.raises(Misuse, match="session 1 is open"):
        log.open_session(1, 1, "p", 0)


# -- ledgers ------------------------------------------------------------------------------------------


def test_an_open_ledger_goes_on() -> None:
    log = Log(next_d=101, next_ledger=9, time=1000)
    log.add_topic(1, next_ordinal=12)
    log.open_ledger(1, 4, 10, 2, 144)
    log.open_session(1, 1, "p", 0)
    applied = apply(log, frame([publish(1, 1, 0, "p", [(0, 1, b"x")])]))
    assert applied.published == [(0, 0, 4, 2, 12, 1, None)]
    assert (applied.first_d, applied.opened) == (101, [])
    assert applied.tails == [(1, 13, 4, 10, 3, 184, 1000)]
    [(ledger, offset, _, index_offset, _)] = take(log).writes
    assert (ledger, offset, index_offset) == (4, 144, 64 + 16)


def test_seal_and_skip_ids(log: Log) -> None:
    apply(log, frame([publish(1, 1, 0, "p", [(0, 1, b"a")])]))
    log.seal_ledger(1)
    assert log.tail(1) == (1, 0, 0, 0, 0)
    log.next_ledger += 1000
    applied = apply(log, frame([publish(1, 1, 0, "p", [(1, 1, b"b")])]))
    assert applied.opened == [(1, 1002, 1)]
    assert entries_of(take(log)) == {1: [b"a"], 1002: [b"b"]}


def test_adopt(log: Log) -> None:
    log.add_topic(2)
    log.begin(frame([(DURABLE, 1, b"")]), 1, 1)
    log.step()
    assert log.append(2, [b"s1", b"s2"]) == (1, 0, 0)
    assert log.append(2, [b"s3"]) == (1, 2, 2)
    log.accept()
    log.finish()
    log.begin(frame([(DURABLE, 1, b""), publish(1, 1, 0, "p", [(0, 1, b"a")])]), 1, 2)
    log.step()
    assert log.adopt(1, 2) == (1, 0, 3, 64 + 3 * 40)
    log.remove_topic(2)
    log.accept()
    assert log.step() is None
    assert log.finish().published == [(1, 0, 2, 0, 3, 1, None)]
    assert log.counts(1) == (7, (4, *(0,) * 8))
    assert entries_of(take(log)) == {1: [b"s1", b"s2", b"s3"], 2: [b"a"]}


def test_counts(log: Log) -> None:
    """Metrics count published entries by size, without duplicates, refusals and redos."""
    assert log.counts(1) == (0, (0,) * 9)
    sizes = [0, 128, 129, 512, 1024, 2048, 4096, 16384, 102400, 102401, 1 << 20, (1 << 20) + 1]
    data = frame([publish(1, 1, 0, "p", [(at, 1 + at, bytes(size)) for at, size in enumerate(sizes)])])
    apply(log, data)
    expected = (sum(sizes), (2, 2, 1, 1, 1, 1, 1, 2, 1))
    assert log.counts(1) == expected
    log.set_topic(1, deduplicate=True)
    apply(log, frame([publish(1, 1, 0, "p", [(0, 3, b"a"), (1, 1, b"a"), (5, 0, b"b")])]))
    apply(log, frame([publish(1, 9, 0, "p", [(50, 1, b"a")])]))
    assert log.counts(1)[0] == expected[0] + 2
    assert sum(log.counts(1)[1]) == len(sizes) + 2
    again = Log()
    again.add_topic(1)
    apply(again, data, redo=True)
    assert again.counts(1) == (0, (0,) * 9)


def test_ledger_header() -> None:
    header = ledger_header(2, 77, bytes(range(16)))
    found = block(header, 0, 5, 77)
    assert found is not None
    assert found[0] == (2).to_bytes(4, "little") + (1).to_bytes(4, "little") + (77).to_bytes(
        8, "little"
    ) + bytes(range(16))
    with pytest.raises(Misuse, match="16 bytes"):
        ledger_header(2, 77, b"")
    with pytest.raises(Misuse, match="kind 2"):
        ledger_header(1, 77, bytes(16))


# -- redo ---------------------------------------------------------------------------------------------


def random_events(chance: random.Random) -> Iterator[Event]:
    for _ in range(chance.randrange(6)):
        if chance.random() < 0.3:
            yield chance.choice((DURABLE, PASSING, APPENDING)), 1, chance.randbytes(chance.randrange(50))
        else:
            topic = chance.randrange(1, 7)  # 6 does not exist
            entries = [
                (
                    chance.randrange(500),
                    chance.randrange(3),
                    chance.randbytes(chance.choice((0, 3, 200, 9000))),
                )
                for _ in range(chance.randrange(1, 6))
            ]
            yield publish(topic, topic, 0, chance.choice("pq"), entries)


def with_topics(topics: Iterable[int]) -> Log:
    log = Log()
    for topic in topics:
        log.add_topic(topic, deduplicate=topic % 2 == 1)
    return log


@pytest.mark.parametrize("seed", seeds("redo", test=5))
def test_a_redo_gives_the_same_bytes(seed: int) -> None:
    """A redo gives equal ledgers, Ds, log time, ledger ids and sequences.

    Nothing of the journal is written twice.
    """
    chance = random.Random(seed)
    log, again = with_topics(range(1, 6)), with_topics(range(1, 6))
    for topic in range(1, 6):
        log.open_session(topic, topic, "p", 0)
    for index in range(200):
        apply(log, frame(list(random_events(chance)), chance.randrange(1000)), index)
        if chance.random() < 0.7:
            continue
        taken = log.take_round()
        if taken is None:
            continue
        for each in frames_of(taken) if taken.first_d else []:
            apply(again, each.frame, each.index, redo=True)
            assert again.time == each.time
        assert (again.next_d, again.next_ledger) == (log.next_d, log.next_ledger)
        redone = take(again)
        assert redone.writes == taken.writes
        assert (redone.first_d, redone.settled_d, redone.journal(0, 0, 0, 0, 0)) == (0, taken.last_d, b"")
        for topic in range(1, 6):
            assert again.tail(topic) == log.tail(topic)
            assert again.sequences(topic) == log.sequences(topic)
    assert log.next_d > 100


def test_many_small_frames_are_one_round(log: Log) -> None:
    """Entries are in order, with one write for each ledger, for all chunk sizes."""
    log.add_topic(2)
    log.open_session(2, 2, "p", 0)
    sent: dict[int, list[bytes]] = {1: [], 2: []}
    for i in range(2000):
        data = i.to_bytes(4, "big") * (30_000 if i % 300 == 7 else i % 40)
        sent[1 + i % 2].append(data)
        apply(log, frame([publish(1 + i % 2, 1 + i % 2, 0, "p", [(i, 1, data)])]), i, urgent=i == 1500)
    taken = take(log)
    assert (taken.first_d, taken.last_d, taken.urgent) == (1, 2000, True)
    assert [each.index for each in frames_of(taken)] == list(range(2000))
    assert len(taken.writes) == 2
    assert entries_of(taken) == sent
