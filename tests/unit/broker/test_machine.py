"""The same events give the same state: on members, from the journal, from a snapshot."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from holdfast.broker.events import (
    Ack,
    AckOffer,
    ConsumerJoin,
    LedgerRoll,
    LedgerTrim,
    MemberHello,
    MoveAsk,
    OwnerAnswer,
    ProducerOpen,
    Reset,
    SubscriptionCreate,
    TopicCreate,
    TransferMark,
    Unload,
    decode,
    kinds,
)
from holdfast.broker.machine import Machine
from holdfast.broker.state import BrokerState
from holdfast.errors import Corrupt, Misuse, NotFound, Unsupported
from holdfast.ids import MessageId
from holdfast.ledger.acks import AckState
from holdfast.ledger.ledgers import LedgerInfo, LedgerTable
from holdfast.names import topic_name
from tests.kit.broker.events import ME, OTHER, Publish, Rig, events_in, frame_of
from tests.kit.broker.storm import Storm, agree
from tests.kit.slices import seeds

SEEDS = seeds("machine", test=8, nightly=400)


@pytest.mark.parametrize("seed", SEEDS)
def test_storms(seed: int) -> None:
    storm = Storm(seed)
    rig = storm.run(600)
    agree(storm)
    assert rig.machine.log.next_d > 200
    assert storm.refused > 20
    assert len(storm.snapshots) > 2


@pytest.fixture(scope="module")
def met() -> dict[str, int]:
    """Return how often storms met each kind of event."""
    found: dict[str, int] = {}
    for seed in seeds("machine", test=16, nightly=400, single=False):
        rig = Storm(seed).run(650)
        for _, _, frame in rig.journal:
            for kind, version, body in events_in(frame):
                name = type(decode(kind, version, body)).__name__ if kind != 1 else "publish"
                found[name] = found.get(name, 0) + 1
    return found


def test_storms_reach_everything(met: dict[str, int]) -> None:
    """A storm that never meets a case proves nothing of it."""
    never = {
        MemberHello,
        TransferMark,
        AckOffer,
        MoveAsk,
        OwnerAnswer,
        Unload,
    }  # they change nothing, so no journal has them
    assert set(met) == {"publish"} | {kind.__name__ for kind in {*kinds().values()} - never}
    assert min(met.values()) >= 2, met


# -- frames --------------------------------------------------------------------------------------------


def test_a_refused_event_leaves_no_byte() -> None:
    rig = Rig()
    topic = rig.topic()
    before = len(rig.journal)
    rig.apply(TopicCreate(topic.name, bytes(16)), LedgerRoll(topic.id, 99), LedgerRoll(88, 1))
    assert len(rig.journal) == before
    applied = rig.apply(TopicCreate(topic.name, bytes(16)), SubscriptionCreate(topic.id, "s"))
    ((_, _, frame),) = rig.journal[before:]
    assert [kind for kind, _, _ in events_in(frame)] == [SubscriptionCreate.kind]
    assert applied.first_d == applied.last_d


def test_what_became_of_publishes() -> None:
    rig = Rig()
    topic = rig.topic()
    session = rig.producer(topic).session
    applied = rig.apply(
        Publish(topic.id, session, [b"a", b"b"]), Publish(77, session, [b"x"]), Publish(topic.id, 55, [b"x"])
    )
    published, missing, fenced = applied.outcomes
    assert (published.first, published.ordinal, published.count) == (MessageId(1, 0), 0, 2)
    assert [type(missing).__name__, type(fenced).__name__] == ["NotFound", "Fenced"]
    assert applied.events == [None, None, None]


def test_a_frame_that_is_none_changes_nothing() -> None:
    rig = Rig()
    before = rig.everything()
    with pytest.raises(Corrupt):
        rig.machine.apply(1, 1, ME, b"nonsense")
    assert rig.everything() == before
    rig.topic()


def test_a_newer_event_stops_the_member() -> None:
    from holdfast import _core

    frame = _core.Frame()
    frame.event(200, 1, b"\x90")
    with pytest.raises(Unsupported, match="newer program"):
        Machine().apply(1, 1, ME, frame.take(0))


def test_redo_refuses_what_does_not_belong() -> None:
    rig = Rig()
    rig.topic()
    with pytest.raises(Corrupt, match="TopicCreate"):
        rig.machine.redo(9, 9, frame_of([TopicCreate(topic_name("orders"), bytes(16))], 0))
    with pytest.raises(Corrupt, match="does not exist"):
        Rig().machine.redo(9, 9, frame_of([Publish(5, 1, [b"x"])], 0))


def test_log_time_never_goes_back() -> None:
    rig = Rig()
    topic = rig.topic()
    session = rig.producer(topic).session
    rig.time += 10**12
    rig.do(Publish(topic.id, session, [b"a"]))
    late = rig.machine.log.time
    rig.time -= 10**12 // 2
    rig.do(Publish(topic.id, session, [b"b"]))
    rig.enter(ME)
    assert rig.machine.log.time == late
    assert topic.ledgers.last is not None
    assert topic.ledgers.last.last_time == late


# -- snapshots -----------------------------------------------------------------------------------------


def test_only_what_changed_is_encoded_again() -> None:
    rig = Rig()
    topics = [rig.topic(f"t{n}") for n in range(3)]
    subscriptions = [rig.subscription(topic) for topic in topics]
    session = rig.filled(topics[1], 5)
    first = rig.machine.capture().parts
    second = rig.machine.capture().parts
    assert [a is b for a, b in zip(first, second, strict=True)] == [False] + [True] * 8
    rig.do(Ack(subscriptions[1].id, 0, [(1, 2)]))
    third = rig.machine.capture().parts
    assert [a is b for a, b in zip(second[1:], third[1:], strict=True)] == [True] * 5 + [False] + [True] * 2
    name = topics[1].producers[session].name
    rig.do(Publish(topics[1].id, session, [b"x"], producer=name))
    fourth = rig.machine.capture().parts
    assert [a is b for a, b in zip(third[1:], fourth[1:], strict=True)] == [True] * 2 + [False] + [True] * 5


def test_capture_tells_the_ledgers() -> None:
    rig = Rig()
    topic = rig.topic(retention_bytes=0)
    rig.filled(topic, 9, ledgers=3)
    rig.subscription(topic, start=6)
    captured = rig.machine.capture()
    assert captured.ledgers == {each.file: (each.size, 3) for each in topic.ledgers}
    assert captured.d == rig.machine.log.next_d - 1
    assert captured.position == rig.machine.state.position
    rig.do(LedgerTrim(topic.id))
    assert list(rig.machine.capture().ledgers) == [3]


def test_sessions_are_in_the_snapshot() -> None:
    """A member that returns must know whose publishes to accept."""
    rig = Rig()
    topic = rig.topic()
    session = rig.producer(topic, "mine", "exclusive", member=OTHER)
    subscription = rig.subscription(topic)
    rig.do(ConsumerJoin(subscription.id, "c", "exclusive", 0, ME))
    machine = Machine()
    machine.load(rig.machine.capture().parts)
    event = Publish(topic.id, session.session, [b"x"], session.epoch, "mine")
    machine.apply(9, 1, OTHER, frame_of([event], 0))
    assert machine.state.topics[topic.id].ledgers.end == 1
    (refusal,) = machine.apply(9, 2, ME, frame_of([ProducerOpen(topic.id, "x", "shared", ME)], 0)).outcomes
    assert type(refusal).__name__ == "Busy"


def snapshot() -> list[bytes]:
    rig = Rig()
    topic = rig.topic(deduplication=True)
    subscription = rig.subscription(topic)
    session = rig.producer(topic).session
    rig.do(Publish(topic.id, session, [b"a"] * 20))
    rig.do(Ack(subscription.id, 0, [(3, 6), (9, 10)], bits=[(12, b"\x02")]))
    rig.do(Reset(subscription.id, b"t", 0, 4))
    rig.do(Ack(subscription.id, 1, [(7, 8)]))
    return rig.machine.capture().parts


def test_load_checks_everything() -> None:
    """A damaged snapshot is refused, or is a sound state; it raises no other error."""
    good = snapshot()
    Machine().load(good)
    with pytest.raises(Corrupt, match="counters"):
        Machine().load([])
    with pytest.raises(Corrupt, match="counters"):
        Machine().load(good[1:])
    with pytest.raises(Corrupt, match="twice"):
        Machine().load([good[0], *good])
    with pytest.raises(Corrupt):
        Machine().load([*good[:2], *good[3:]])  # the subscription's topic is missing
    with pytest.raises(Corrupt):
        Machine().load([*good, good[2]])
    with pytest.raises(Corrupt, match="after the topics"):
        Machine().load([good[0], *good[2:], good[1]])
    for number, part in enumerate(good):
        for cut in range(len(part)):
            with pytest.raises(Corrupt):
                Machine().load([*good[:number], part[:cut], *good[number + 1 :]])
    refused = 0
    for number, part in enumerate(good):
        for at in range(0, len(part), 3):
            changed = bytes([*part[:at], part[at] ^ 0x55, *part[at + 1 :]])
            try:
                machine = Machine()
                machine.load([*good[:number], changed, *good[number + 1 :]])
                machine.check()
            except Corrupt:
                refused += 1
    assert refused > 40


def test_a_snapshot_of_a_newer_program() -> None:
    with pytest.raises(Corrupt, match="newer program"):
        Machine().load([*snapshot(), msgspec.msgpack.encode(["compaction", 1])])


def test_digests_do_not_depend_on_how_holes_came_about() -> None:
    """Roaring's bytes do."""
    rig, other = Rig(), Rig()
    for each in (rig, other):
        topic = each.topic()
        each.filled(topic, 300)
        each.subscription(topic)
    rig.apply(*(Ack(1, 0, [(at, at + 1)]) for at in range(5, 290)))
    other.apply(*(Ack(1, 0, [(at, at + 1)]) for at in reversed(range(5, 290))))
    ours, theirs = (each.machine.state.subscriptions[1].acks for each in (rig, other))
    theirs._holes.run_optimize()
    assert ours._holes.serialize() != theirs._holes.serialize()
    assert rig.machine.digest() == other.machine.digest()
    other.index, other.time = rig.index, rig.time
    rig.do(Ack(1, 0, [(295, 296)]))
    other.do(Ack(1, 0, [(296, 297)]))
    assert rig.machine.digest() != other.machine.digest()


# -- the checker ---------------------------------------------------------------------------------------


def loaded() -> BrokerState:
    machine = Machine()
    machine.load(snapshot())
    return machine.state


def forget_name(state: BrokerState) -> None:
    state.names.clear()


def counter(state: BrokerState) -> None:
    state.next_subscription = 1


def session_nowhere(state: BrokerState) -> None:
    state.sessions[77] = state.topics[1]


def behind_the_log(state: BrokerState) -> None:
    state.log.seal_ledger(1)


def hole_beyond_the_end(state: BrokerState) -> None:
    state.subscriptions[1].acks.ack_ranges([(50, 51)], 100)


def gap(state: BrokerState) -> None:
    state.topics[1].ledgers = LedgerTable(
        [LedgerInfo(1, 1, 0, 5, 99, True, 0, 0), *state.topics[1].ledgers], 20
    )


def exclusive_with_company(state: BrokerState) -> None:
    topic = state.topics[1]
    (producer,) = topic.producers.values()
    topic.producers[9] = msgspec.structs.replace(producer, session=9, access="exclusive")


def types_mixed(state: BrokerState) -> None:
    from holdfast.broker.state import Consumer

    for session, kind in ((8, "shared"), (9, "failover")):
        state.subscriptions[1].consumers[session] = Consumer(session, "c", kind, 0, ME)  # type: ignore[arg-type]


def stage_short(state: BrokerState) -> None:
    from holdfast.broker.state import StageState, StageTopic

    stage = StageState(bytes(16), 0)
    stage.topics[1] = StageTopic(1, count=2, size=1, entries=[b"a"])
    state.stages[stage.id] = stage


def file_twice(state: BrokerState) -> None:
    (info,) = state.topics[1].ledgers
    first = msgspec.structs.replace(info, entries=5, sealed=True)
    second = msgspec.structs.replace(info, id=2, first=5, entries=15)
    state.topics[1].ledgers = LedgerTable([first, second], 20)
    state.log.seal_ledger(1)
    state.log.open_ledger(1, 2, 5, 15, info.size)


@pytest.mark.parametrize(
    ("damage", "number"),
    [
        (gap, "I40"),
        (hole_beyond_the_end, "I41"),
        (counter, "I42"),
        (behind_the_log, "I43"),
        (forget_name, "I44"),
        (session_nowhere, "I44"),
        (exclusive_with_company, "I45"),
        (types_mixed, "I46"),
        (stage_short, "I47"),
        (file_twice, "I48"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_check_notices(damage: Callable[[BrokerState], None], number: str) -> None:
    state = loaded()
    state.check()
    damage(state)
    with pytest.raises(AssertionError, match=number):
        state.check()


# -- the ledger table ----------------------------------------------------------------------------------


def table() -> LedgerTable:
    made = LedgerTable()
    made.grow(2, 0, 5, 500, 10)
    made.seal()
    made.adopt(7, 1, 3, 300, 20)
    made.grow(9, 8, 2, 200, 30)
    made.check()
    return made


def test_places_and_ids() -> None:
    made = table()
    for ordinal in range(10):
        found = made.id_of(ordinal)
        assert made.ordinal(found.ledger, found.entry) == ordinal
    assert made.id_of(5) == MessageId(7, 0)
    assert (made.at(5).file, made.size, made.open_ledger, sum(each.sealed for each in made)) == (
        1,
        1000,
        9,
        2,
    )
    for ordinal in (-1, 10):
        with pytest.raises(NotFound):
            made.at(ordinal)
    for (ledger, entry), expected in {
        (-1, -1): 0, (2, -1): 0, (2, 99): 5, (3, 4): 5, (8, 0): 8, (9, 99): 10, (99, 0): 10
    }.items():  # fmt: skip
        assert made.ordinal(ledger, entry) == expected
    assert [[each.id for each in made.since(time)] for time in (0, 10, 11, 30, 31)] == [
        [2, 7, 9], [2, 7, 9], [7, 9], [9], []
    ]  # fmt: skip
    assert [each.id for each in made.drop(2)] == [2, 7]
    assert (made.first, made.end, made.ordinal(2, 0)) == (8, 10, 8)
    made.seal()
    made.drop(1)
    assert (made.first, made.end, made.last, made.open_ledger) == (10, 10, None, None)


@pytest.mark.parametrize("seed", seeds("ledger table", test=1))
def test_positions_are_found_among_many_ledgers(seed: int) -> None:
    made = LedgerTable((LedgerInfo(n, n, n * 10, 10, 99, True, n, n) for n in range(1, 100_001)), 1_000_010)
    for ordinal in random.Random(seed).sample(range(10, 1_000_010), 1000):
        assert made.id_of(ordinal) == MessageId(ordinal // 10, ordinal % 10)


def test_misuse_of_an_empty_state() -> None:
    state = BrokerState(Machine().log)
    with pytest.raises(NotFound):
        state.require_topic(1)
    with pytest.raises(NotFound):
        state.require_subscription(1)
    assert AckState(5).acked_in(0, 9) == [(0, 5)]
    with pytest.raises(Misuse):
        MessageId.parse("x")
