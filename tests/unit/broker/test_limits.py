"""The broker just before the end of each number, and beyond it: docs/reference/limits.md names them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Corrupt, HoldfastError, Misuse
from holdfast.broker import Broker, BrokerOptions, state_codec
from holdfast.broker.api.producer import SEQUENCE_MAX
from holdfast.broker.events import (
    Ack,
    ConsumerJoin,
    Event,
    ProducerOpen,
    Reset,
    SinkCommit,
    StageAppend,
    StageOpen,
    SubscriptionCreate,
    TopicCreate,
    kinds,
)
from holdfast.broker.events.stages import SPILL_BYTES, stage_digest
from holdfast.broker.machine import Machine
from holdfast.group import Member
from holdfast.ids import NUMBER_MAX, MessageId
from holdfast.ledger.acks import AckState
from holdfast.ledger.files.doctor import examine
from tests.kit.broker import limit_checks as checks
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.events import ME, Publish, Rig, refused
from tests.kit.broker.limit_checks import SMALL, passes
from tests.kit.broker.old import Age

LEFT = 1 << 32
WORD = (1 << 64) - 1


# -- a broker of 29,000 years --------------------------------------------------------------------------


def test_the_last_positions_of_a_topic(tmp_path: Path) -> None:
    checks.the_last_positions_of_a_topic(tmp_path / "data")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("age", "words"),
    [(Age(d=NUMBER_MAX - LEFT - 8), "event numbers"), (Age(ledger=NUMBER_MAX - LEFT), "ledger ids")],
)
def test_the_last_event_and_the_last_ledger(tmp_path: Path, age: Age, words: str) -> None:
    """The broker stops with a name for it; what was confirmed is there."""
    path = age.make(tmp_path / "data")
    confirmed: list[MessageId] = []

    async def work(broker: Broker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the group's complaint
        with pytest.raises(HoldfastError, match=f"has used up its 63 bits of {words}"):
            await passes(broker, 9, confirmed)

    on_broker(path, work, **SMALL)
    assert confirmed
    with pytest.raises(HoldfastError, match=f"has used up its 63 bits of {words}"):
        on_broker(path, passes, **SMALL)
    assert len(list((path / "ledgers").glob("*.data"))) == 1


def test_the_last_ids(tmp_path: Path) -> None:
    checks.the_last_ids(tmp_path / "data")


@pytest.mark.parametrize("bits", [16, 31, 32, 53, 62])
def test_a_broker_passes_the_end_of_narrower_numbers(tmp_path: Path, bits: int) -> None:
    """A counter kept in fewer bits would lose messages, over a crash and a restart."""
    edge = (1 << bits) - 4
    age = Age(edge - 8, edge + 3, edge, edge + 1, edge + 3, view=edge + 3, sequence=edge)
    path, crashed = age.make(tmp_path / "data"), tmp_path / "crashed"
    sent: list[MessageId] = []

    async def first(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "all", "earliest")
        await passes(broker, 8, sent)
        await broker.admin.roll("orders")
        await passes(broker, 2, sent)
        # As a kill would leave it: the journal first, ledgers that are ahead of it are cut.
        shutil.copytree(path, crashed, ignore=shutil.ignore_patterns("ledgers", "lock", "spare*"))
        shutil.copytree(path / "ledgers", crashed / "ledgers")

    async def again(broker: Broker) -> None:
        async with broker.consumer("orders", "all", type="shared") as consumer:
            got = await consumer.receive_many(100, 5)
            while len(got) < len(sent):
                got += await consumer.receive_many(100, 5)
            assert [message.id for message in got] == sent
            assert [message.ordinal for message in got] == list(range(edge, edge + len(sent)))
            await consumer.ack_many(got[1::2], receipt=True)
            await consumer.seek(got[5].id)
            assert (await consumer.receive(5)).id == sent[5]
        await passes(broker, 4)

    on_broker(path, first, **SMALL)
    for where in (crashed, path):
        on_broker(where, again, **SMALL)
        on_broker(where, passes, **SMALL)
        assert examine(where).faults == []


def test_the_last_sequence_of_a_producer(tmp_path: Path) -> None:
    path = Age(sequence=SEQUENCE_MAX - 2).make(tmp_path / "data")

    async def work(broker: Broker) -> None:
        async with broker.producer("orders", name="p") as producer:
            assert producer.last_sequence == SEQUENCE_MAX - 2
            await producer.send(b"the last but one")
            with pytest.raises(Misuse, match=f"sequence {SEQUENCE_MAX} for 2 messages of p to orders"):
                await producer.send_many([b"the last", b"one more"])
            await producer.send(b"the last")
            with pytest.raises(Misuse, match="A producer of another name begins at 0"):
                await producer.send(b"one more")

    on_broker(path, work, deduplication=True, **SMALL)


def test_the_last_year(tmp_path: Path) -> None:
    """Log time of 2262, and of 2554: messages go through, and restarts find them."""
    for time_ns in (NUMBER_MAX - 1, WORD - 1):
        path = Age(time_ns=time_ns).make(tmp_path / str(time_ns))
        on_broker(path, passes, **SMALL)
        on_broker(path, passes, **SMALL)


def test_log_time_stands_still_where_clocks_end() -> None:
    checks.log_time_stands_still_where_clocks_end()


# -- numbers of users ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sequence": -1}, "sequence -1 for 1 messages"),
        ({"sequence": SEQUENCE_MAX + 1}, "sequences are 0 to 9223372036854775806"),
        ({"sequence": 1 << 64}, "sequences are 0 to"),
        ({"event_time": -1_000_000}, "the event time in ms must be 0 to"),
        ({"event_time": datetime(1969, 12, 31, tzinfo=UTC)}, "the event time in ms must be 0 to"),
        ({"event_time": (WORD + 1) * 1_000_000}, "the event time in ms must be 0 to"),
    ],
)
def test_what_no_message_carries_is_misuse(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            with pytest.raises(Misuse, match=words):
                await producer.send(b"x", **fields)
            await producer.send(b"x", sequence=SEQUENCE_MAX)

    on_broker(tmp_path, work, **SMALL)


@pytest.mark.parametrize("delay", [-1.0, 1.1e9, 1.9e10, 1e300, float("inf"), float("nan")])
def test_a_delay_that_cannot_be_counted_is_misuse(tmp_path: Path, delay: float) -> None:
    checks.a_delay_that_cannot_be_counted_is_misuse(tmp_path, delay)


@pytest.mark.parametrize("size", [0, -1, 1 << 32, 1 << 64, 1 << 80])
def test_a_receiver_queue_of_any_number_is_misuse_or_works(tmp_path: Path, size: int) -> None:
    async def work(broker: Broker) -> None:
        with pytest.raises(Misuse, match=r"a receiver queue of .* messages; use 1 to 4294967295"):
            broker.consumer("orders", "s", receiver_queue=size)
        with pytest.raises(Misuse, match="a receiver queue"):
            broker.reader("orders", receiver_queue=size)
        with pytest.raises(Misuse, match=r"a batch of .* messages; use 1 to 16777216"):
            broker.producer("orders", batch=size)
        async with broker.consumer("orders", "s", receiver_queue=(1 << 32) - 1) as consumer:
            async with broker.producer("orders", batch=1 << 24) as producer:
                await producer.send(b"x")
            await consumer.receive(5)

    on_broker(tmp_path, work, **SMALL)


FLOATS = [each for each, value in vars(BrokerOptions()).items() if isinstance(value, float)]
COUNTS = [
    each
    for each, value in vars(BrokerOptions()).items()
    if isinstance(value, int) and not isinstance(value, bool)
]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [-2.0, 1.1e9, float("inf"), float("nan")])
def test_an_option_in_seconds_beyond_its_range_is_misuse(name: str, value: Any) -> None:
    assert len(FLOATS) > 8
    checks.an_option_beyond_its_range_is_misuse(name, value)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-2, (1 << 62) + 1, 1 << 80])
def test_an_option_that_counts_beyond_its_range_is_misuse(name: str, value: Any) -> None:
    assert len(COUNTS) > 6
    checks.an_option_beyond_its_range_is_misuse(name, value)


def test_the_largest_options_do_their_work(tmp_path: Path) -> None:
    """All at once, but for those that take room on the disk."""
    most: dict[str, Any] = dict.fromkeys(FLOATS, 1000000000.0) | dict.fromkeys(COUNTS, 1 << 62)
    most |= {"journal_bytes": 1 << 16, "reserve_bytes": 1 << 16, "housekeeping_s": 0.005, "nack_first_s": 0.0}
    most["create_partitions"] = 0  # else "orders" is partitioned

    async def work(broker: Broker) -> None:
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        await passes(broker, 2)
        async with (
            broker.consumer("orders", "s", type="shared") as consumer,
            broker.producer("orders") as producer,
        ):
            await producer.send(b"x")
            consumer.nack(await consumer.receive(5))
            await consumer.receive(5)
        await broker.admin.trim("orders")
        await asyncio.sleep(0.02)  # housekeeping must not fail meanwhile
        assert broken == []

    on_broker(tmp_path, work, **most)


def test_the_longest_names(tmp_path: Path) -> None:
    """Names of 1,024 bytes are accepted, also with 2-byte letters; longer ones are refused."""

    async def work(broker: Broker) -> None:
        for letter, size in (("n", 1024), ("é", 512)):
            name = letter * size
            await broker.admin.create_topic(name)
            async with (
                broker.consumer(name, name, name=name, priority=(1 << 31) - 1, type="shared") as consumer,
                broker.consumer(name, name, name=name, priority=1 - (1 << 31), type="shared"),
                broker.producer(name, name=name) as producer,
            ):
                await producer.send(b"x")
                assert (consumer.name, producer.name) == (name, name)
            longer = name + "n"
            refusals: list[Awaitable[object]] = [
                broker.admin.create_topic(longer),
                broker.consumer("t", longer).open(),
                broker.consumer("t", "s", name=longer).open(),
                broker.producer("t", name=longer).open(),
            ]
            for refusal in refusals:
                with pytest.raises(Misuse, match="1024 bytes"):
                    await refusal
        with pytest.raises(Misuse, match="priority"):
            await broker.consumer("t", "s", priority=1 << 31).open()

    on_broker(tmp_path, work)


# -- events --------------------------------------------------------------------------------------------

EXTREMES = (-(1 << 63), -1, 0, LEFT - 1, LEFT, NUMBER_MAX, NUMBER_MAX + 1, WORD)
STAGE = b"s" * 16
GIVEN: dict[str, Any] = {
    "access": "shared", "at": 2, "batch": 1, "body": b"", "entries": [b"q"], "expected": 0,
    "key": "k", "ledger": 2, "member": ME, "members": [ME], "name": "n", "older_than": 5, "priority": 0,
    "producer": "p", "receipts": [(STAGE, 1, 2, stage_digest([b"a", b"b"]))], "reset_number": 0,
    "schema": b"x", "session": 1, "stage": STAGE, "subscription": 1,
    "target": 3, "time": 5, "topic": 1, "token": b"", "type": "shared",
}  # fmt: skip


def numbered() -> list[tuple[type[Event], str]]:
    """Every field of every event that is a number, or is made of numbers."""
    return [
        (kind, field.name)
        for kind in kinds().values()
        for field in msgspec.structs.fields(kind)
        if field.type is int or field.name in ("ranges", "bits", "receipts", "member", "members")
    ]


def put(name: str, number: int) -> list[Any]:
    """Values of a field with this number in them."""
    values: dict[str, list[Any]] = {
        "ranges": [[(number, number)], [(0, number)], [(number, WORD)], [(2, 3), (number, 5)]],
        "bits": [[(number, b"\1")], [(number, b"")]],
        "receipts": [[(STAGE, 1, number, number)], [(STAGE, number, 2, 0)]],
        "member": [Member(number, number)],
        "members": [[ME, Member(number, number)]],
    }
    return values.get(name, [number])


@pytest.fixture(scope="module")
def world() -> list[bytes]:
    """A state with something of everything, as the parts of its snapshot."""
    rig = Rig()
    topic = rig.topic("t", deduplication=True)
    rig.subscription(topic, "s")
    rig.filled(topic, 10, ledgers=2)
    rig.do(ConsumerJoin(1, "c", "shared", 0, ME))
    rig.do(StageOpen(STAGE))
    rig.do(StageAppend(STAGE, 1, 0, [b"a", b"b"]))
    return rig.machine.capture().parts


@pytest.mark.parametrize(("kind", "field"), numbered(), ids=lambda each: getattr(each, "__name__", each))
def test_every_number_of_an_event_is_applied_or_refused(
    world: list[bytes], kind: type[Event], field: str
) -> None:
    """An error of `apply` other than a refusal would stop every member, e.g. a TypeError."""
    needed = {each.name for each in msgspec.structs.fields(kind) if each.required} | {field}
    for number in EXTREMES:
        for value in put(field, number):
            machine = Machine()
            machine.load(world)
            event = kind(**({each: GIVEN.get(each) for each in needed} | {field: value}))
            try:
                event.encode()
            except Misuse:
                continue
            rig = Rig(machine)
            rig.apply(event)
            again = Machine()
            again.load(machine.capture().parts)
            assert again.digest() == machine.digest()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TopicCreate("persistent://public/default/n", bytes(16)),
        lambda: SubscriptionCreate(NUMBER_MAX + 1, "n"),
        lambda: ProducerOpen(NUMBER_MAX + 1, "n", "exclusive-with-fencing", ME),
        lambda: ConsumerJoin(1, "n", "shared", 0, ME),
        lambda: StageAppend(STAGE, NUMBER_MAX + 1, 0, [bytes(SPILL_BYTES + 1)]),
    ],
)
def test_an_event_without_a_number_left_changes_nothing(make: Callable[[], Event]) -> None:
    machine = Age(ids=NUMBER_MAX + 1).machine()
    state = machine.state
    state.next_subscription = state.next_session = 1
    rig = Rig(machine)
    rig.do(SubscriptionCreate(NUMBER_MAX + 1, "s", 0))
    rig.do(ProducerOpen(NUMBER_MAX + 1, "p", "shared", ME))
    rig.do(StageOpen(STAGE))
    state.next_topic = NUMBER_MAX + 2
    state.next_subscription = state.next_session = NUMBER_MAX + 1
    refused(rig, make(), HoldfastError, "has used up its 63 bits of ids of")


def test_the_last_reset_and_the_last_epoch(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    subscription.reset_number, topic.epoch = NUMBER_MAX - 1, NUMBER_MAX - 1
    rig.do(Reset(subscription.id, b"", NUMBER_MAX - 1, 0))
    refused(rig, Reset(subscription.id, b"", NUMBER_MAX, 0), HoldfastError, "63 bits of resets of 'billing'")
    rig.producer(topic, access="exclusive")
    fencing = ProducerOpen(topic.id, "q", "exclusive-with-fencing", ME)
    refused(rig, fencing, HoldfastError, "63 bits of epochs of")


@pytest.mark.parametrize("size", [10, SPILL_BYTES + 1])
def test_a_commit_beyond_the_last_position_changes_nothing(size: int) -> None:
    """In memory, or in a ledger of its own: the stage stays, and the topic."""
    rig = Rig(Age(ordinal=NUMBER_MAX - 3).machine())
    entries = [bytes(size)] * 2
    for stage in (STAGE, b"t" * 16):
        rig.do(StageOpen(stage))
        rig.do(StageAppend(stage, 1, 0, entries))
    receipts = [(stage, 1, 2, stage_digest(entries)) for stage in (STAGE, b"t" * 16)]
    refused(rig, SinkCommit("k", 1, receipts), HoldfastError, "63 bits of positions of persistent://")
    assert rig.do(SinkCommit("k", 1, receipts[:1])).committed
    assert rig.state.topics[1].ledgers.end == NUMBER_MAX - 1


def test_a_publish_of_the_last_sequence_is_redone(rig: Rig) -> None:
    topic = rig.topic(deduplication=True)
    session = rig.producer(topic)
    rig.do(Publish(topic.id, session.session, [b"x"], sequence=SEQUENCE_MAX))
    assert rig.restarted().digest() == rig.machine.digest()
    assert rig.machine.log.sequences(topic.id) == [("p", SEQUENCE_MAX)]


# -- acknowledgements ----------------------------------------------------------------------------------


def test_acknowledgements_of_the_last_ordinals() -> None:
    end = NUMBER_MAX
    acks = AckState(end - 6)
    acks.ack_ranges([(end - 1, WORD), (end - 4, end - 3)], end)
    acks.ack_batch(end - 5, 0b10, end)
    assert list(acks.ranges()) == [(end - 4, end - 3), (end - 1, end)]
    assert (acks.count(end), acks.after_unacked(2, end)) == (4, end - 4)
    assert acks.bits_in(0, WORD) == {end - 5: 0b10}
    acks.check(0, end)
    packed = AckState.unpack(*acks.pack())
    assert list(packed.ranges()) == list(acks.ranges())
    packed.ack_cumulative(WORD, end)
    assert (packed.acked_to, packed.holes_count, packed.partial_count) == (end, 0, 0)


def test_an_acknowledgement_of_any_ordinal(rig: Rig) -> None:
    """Beyond the end nothing is acknowledged."""
    topic = rig.topic()
    rig.filled(topic, 10)
    subscription = rig.subscription(topic)
    rig.do(Ack(subscription.id, 0, [(8, WORD)], bits=[(WORD, b"\1"), (10, b"\1")]))
    assert list(subscription.acks.ranges()) == [(8, 10)]
    rig.do(Ack(subscription.id, 0, cumulative=WORD))
    assert subscription.acks.acked_to == 10


# -- ids as text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [f"{1 << 63}:0", f"0:{1 << 63}", f"0:0:{1 << 64}", "9" * 5000 + ":1"])
def test_an_id_beyond_the_last_is_misuse(text: str) -> None:
    with pytest.raises(Misuse, match="its numbers are at most 9223372036854775807") as caught:
        MessageId.parse(text)
    assert len(str(caught.value)) < 200


def test_the_last_id_is_read() -> None:
    assert MessageId.parse(f"{NUMBER_MAX}:{NUMBER_MAX}:{NUMBER_MAX}") == (NUMBER_MAX,) * 3
    assert str(holdfast.MessageId.parse("003:5")) == "3:5"


async def nowhere(broker: Broker, to: Any) -> bool:
    async with broker.producer("orders") as producer:
        await producer.send(b"x")
    async with broker.reader("orders", start=to) as reader:
        return await reader.has_more()


@pytest.mark.parametrize(
    ("to", "more"),
    [
        (-(1 << 80), True),
        (1 << 80, False),
        (MessageId(-(1 << 80), 0), True),
        (MessageId(1 << 80, 0), False),
        (MessageId(1, 1 << 80), False),
        (MessageId(1, -(1 << 80)), True),
        (MessageId(1, 0, 1 << 80), True),
    ],
)
def test_a_place_of_any_number_is_a_place(tmp_path: Path, to: Any, more: bool) -> None:
    work: Callable[[Broker], Awaitable[bool]] = lambda broker: nowhere(broker, to)  # noqa: E731
    assert on_broker(tmp_path, work, **SMALL) is more


def test_a_broker_is_not_opened_with_options_beyond_their_range(tmp_path: Path) -> None:
    checks.a_broker_is_not_opened_with_options_beyond_their_range(tmp_path / "data")


@pytest.mark.parametrize(
    ("field", "number"),
    [(each, -2) for each in ("d", "view", "index", "time", "next_ledger", "next_topic", "views")]
    + [("d", WORD)],
)
def test_a_snapshot_of_impossible_numbers_is_corrupt(world: list[bytes], field: str, number: int) -> None:
    """Counters that no version writes are `Corrupt`, not an error of the core."""
    counters = msgspec.structs.replace(state_codec._decode(0, world[0]), **{field: number})
    with pytest.raises(Corrupt, match="parts do not fit together"):
        state_codec.unpack([state_codec._encoder.encode(counters), *world[1:]])
