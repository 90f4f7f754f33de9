"""Wrong use of producers, priorities and loops is refused; nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Channel, ChannelProducer, Exists, LayoutMismatch, Loop, Misuse, _core

Group = tuple[Channel, ChannelProducer, ChannelProducer]


@pytest.fixture
def group(runtime_directory: object) -> Iterator[Group]:
    with Channel.create("c", slots=2, slot_size=16, producers=2, priorities=3) as channel:
        yield channel, channel.producer(), channel.producer()


def require_unchanged(channel: Channel) -> None:
    stats = channel.stats()
    assert (stats.free, stats.ready, stats.held, stats.pushed) == (stats.buffers, 0, 0, 0)
    assert channel.check() == []


# -- numbers of producers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-1, 2, 16, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 64, 1 << 200])
def test_a_number_that_no_producer_has(group: Group, number: int) -> None:
    with pytest.raises(Misuse, match=f"channel c has no producer {number}: it has 2, counted from 0"):
        group[0].producer(number)
    assert len(group[0].stats().participants) == 2


def test_the_core_checks_a_number_too(group: Group) -> None:
    with pytest.raises(Misuse, match="channel c has no producer 2: it has 2"):
        _core.ChannelProducer(group[0]._open_segment(), 2)


@pytest.mark.parametrize("number", [True, 1.0, "1", b"1", []])
def test_a_number_of_another_type(group: Group, number: Any) -> None:
    with pytest.raises(Misuse, match="number must be a whole number"):
        group[0].producer(number)


def test_a_number_that_is_taken(group: Group) -> None:
    channel, _, second = group
    with pytest.raises(Misuse, match=r"has producer 1 already: pid \d+ \(this process\)\. Close it"):
        channel.producer(1)
    with pytest.raises(
        Misuse,
        match=r"has its 2 producers already: pid \d+ \(this process\), pid \d+ \(this process\)\. Close",
    ):
        channel.producer()
    assert len(channel.stats().participants) == 2, "a refused role keeps no slot"
    second.close()
    assert channel.producer(1).number == 1


def test_one_consumer_of_all_producers(group: Group) -> None:
    channel, *_ = group
    with channel.consumer(), pytest.raises(Misuse, match="has a consumer already"):
        channel.consumer()


@pytest.mark.parametrize("key", ["producers", "priorities"])
@pytest.mark.parametrize("number", [-1, 0, 17, 256, 1 << 16, 1 << 32, 1 << 64, True, 1.0, "2"])
def test_counts_that_no_channel_has(runtime_directory: object, key: str, number: Any) -> None:
    sizes: dict[str, Any] = {"slots": 1, "slot_size": 8, key: number}
    with pytest.raises(Misuse, match=key):
        Channel.create("n", **sizes)
    with pytest.raises(Misuse, match=key):
        Loop.create("n", **sizes)
    assert Channel.list() == []


def test_the_ends_of_the_counts(runtime_directory: object) -> None:
    with pytest.raises(Misuse, match="producers must be 1 to 16, not 17"):
        Channel.create("n", slots=1, slot_size=8, producers=17)
    with pytest.raises(Misuse, match="priorities must be 1 to 8, not 9"):
        Channel.create("n", slots=1, slot_size=8, priorities=9)


def test_other_counts_of_what_exists(group: Group) -> None:
    same: dict[str, Any] = {"slots": 2, "slot_size": 16, "producers": 2, "priorities": 3, "exist_ok": True}
    Channel.create("c", **same).close()
    for key, found in (("producers", 2), ("priorities", 3)):
        with pytest.raises(LayoutMismatch, match=f"{key} is {found}, not {found + 1}"):
            Channel.create("c", **same | {key: found + 1})
    with pytest.raises(Exists):
        Channel.create("c", slots=2, slot_size=16, producers=2, priorities=3)


# -- priorities -------------------------------------------------------------------------------------------

PRIORITY = "priority {} does not exist: channel c has 3, from 0 to 2"
BAD: dict[str, tuple[Any, str]] = {
    "negative": (-1, PRIORITY.format(-1)),
    "next": (3, PRIORITY.format(3)),
    "wide": (1 << 32, PRIORITY.format(1 << 32)),
    "huge": (1 << 200, PRIORITY.format("of that size")),
    "far below": (-(1 << 200), PRIORITY.format("of that size")),
    "bool": (True, "priority must be a whole number, not True"),
    "float": (1.0, "priority must be a whole number, not 1.0"),
    "text": ("high", "priority must be a whole number, not 'high'"),
}
WAYS: dict[str, Callable[[ChannelProducer, Any], object]] = {
    "push": lambda producer, bad: producer.push(b"x", priority=bad),
    "push in order": lambda producer, bad: producer.push(b"x", 0, bad),
    "batch": lambda producer, bad: producer.push_batch([b"x", b"y"], priority=bad),
    "empty batch": lambda producer, bad: producer.push_batch([], priority=bad),
    "loan": lambda producer, bad: producer.loan(priority=bad),
    "push of a loan": lambda producer, bad: producer.push(producer.loan(1), priority=bad),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("way", WAYS)
def test_a_priority_that_does_not_exist(group: Group, way: str, bad: str) -> None:
    channel, producer, _ = group
    value, words = BAD[bad]
    with pytest.raises(Misuse, match=words):
        WAYS[way](producer, value)
    assert producer.loans == 0
    require_unchanged(channel)


def test_none_is_the_usual_priority(group: Group) -> None:
    channel, producer, _ = group
    producer.push(b"1", None, None)
    producer.push_batch([b"2"], priority=None)
    consumer = channel.consumer()
    for _ in range(2):
        with consumer.pop(0) as item:
            assert item.priority == 0


def test_a_loan_of_another_priority(group: Group) -> None:
    channel, producer, _ = group
    loan = producer.loan(1, priority=2)
    with pytest.raises(Misuse, match="has priority 2, and not 0: each priority has its own buffers"):
        producer.push(loan, priority=0)
    with pytest.raises(Misuse, match="has priority 2, and not 1"):
        producer.push_batch([loan], priority=1)
    low = producer.loan(1)
    with pytest.raises(Misuse, match="has priority 0, and not 2"):
        producer.push_batch([loan, low])
    assert producer.loans == 2
    require_unchanged(channel)
    producer.push(loan)
    producer.push(low)


def test_a_loan_of_another_producer(group: Group) -> None:
    channel, producer, other = group
    for use in (producer.push, lambda loan: producer.push_batch([loan])):
        with pytest.raises(Misuse, match="this loan is of channel c, or of another producer"):
            use(other.loan(1, priority=1))
    require_unchanged(channel)


def test_a_handle_of_another_producer(group: Group) -> None:
    channel, producer, other = group
    for priority in range(3):
        handle = other.push(b"x", priority=priority).handle
        producer.push(b"y", priority=priority)
        with pytest.raises(Misuse, match="this handle is of producer 1 of channel c, and this one is 0"):
            producer.cancel(handle)
        assert other.cancel(handle)
    assert channel.stats().cancelled == 3
    assert channel.stats().ready == 3


def test_more_loans_than_agreed_name_the_priority(runtime_directory: object) -> None:
    with Channel.create("c", slots=1, slot_size=8, loans=1, priorities=2) as channel:
        producer = channel.producer()
        kept = producer.loan(priority=1)
        with pytest.raises(Misuse, match="at most 1 buffers at once for priority 1"):
            producer.push(b"x", priority=1)
        producer.push(b"x", priority=0)
        kept.release()


# -- damage -----------------------------------------------------------------------------------------------


def test_damage_names_the_lane(group: Group, runtime_directory: Any) -> None:
    """check() and the roles name the producer and priority of a damaged lane."""
    channel, first, second = group
    second.push(b"good")
    size = (runtime_directory / "holdfast.channel.c").stat().st_size
    lane = 1 * 3 + 2  # of the second producer, with the highest priority
    with (runtime_directory / "holdfast.channel.c").open("r+b") as file:
        file.seek(lane * size // 6 + 16384)
        file.write(b"\xee" * 3)
    faults = channel.check()
    assert faults[0].startswith("producer 1, priority 2, slot 0: its state is 238")
    consumer = channel.consumer()
    with pytest.raises(Exception, match="producer 1, priority 2 of channel c is damaged: state"):
        consumer.pop(0)
    first.push(b"goes on", priority=2)
    with pytest.raises(Exception, match="producer 1, priority 2 of channel c is damaged"):
        second.push(b"x", priority=2)
    second.close()
    with pytest.raises(Exception, match="producer 1, priority 2 of channel c is damaged"):
        channel.producer(1)
