"""Several producers and priorities: their numbers, the order of data, what is lost, and waits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import (
    Channel,
    ChannelConsumer,
    ChannelProducer,
    Empty,
    Full,
    HoldfastError,
    Timeout,
    _core,
)

SLOTS, PRODUCERS, PRIORITIES = 3, 3, 2
Found = tuple[bytes, int, int, int]
"""A datum, the number of its producer, its priority, and how many were lost before it."""


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=SLOTS, slot_size=16, producers=PRODUCERS, priorities=PRIORITIES) as made:
        yield made


def drain(consumer: ChannelConsumer) -> list[Found]:
    found = []
    while not consumer.empty:
        with consumer.pop(0) as item:
            found.append((bytes(item), item.producer, item.priority, item.lost))
    return found


def data_of(found: list[Found]) -> list[bytes]:
    return [data for data, *_ in found]


def require_whole(channel: Channel) -> None:
    """Check that no buffer is missing."""
    stats = channel.stats()
    assert (stats.held, stats.ready + stats.free) == (0, stats.buffers)
    assert channel.check() == []


def all_producers(channel: Channel) -> list[ChannelProducer]:
    return [channel.producer() for _ in range(channel.stats().producers)]


# -- numbers ----------------------------------------------------------------------------------------------


def test_a_producer_gets_the_first_free_number(channel: Channel) -> None:
    first, second, third = all_producers(channel)
    assert [first.number, second.number, third.number] == [0, 1, 2]
    second.close()
    assert channel.producer().number == 1
    third.close()
    first.close()
    assert channel.producer().number == 0


def test_a_number_is_chosen_and_taken_again(channel: Channel) -> None:
    last = channel.producer(number=2)
    assert last.number == 2
    others = [channel.producer() for _ in range(2)]
    assert [each.number for each in others] == [0, 1], "those before it are free"
    last.push(b"of the first")
    last.close()
    again = channel.producer(2)
    again.push(b"of the second")
    assert drain(channel.consumer()) == [(b"of the first", 2, 0, 0), (b"of the second", 2, 0, 0)]


def test_a_number_selects_a_row_of_stats(channel: Channel) -> None:
    last, consumer = channel.producer(2), channel.consumer()
    stats = channel.stats()
    assert [each and each.slot for each in stats.attached_producers] == [None, None, last.slot]
    assert stats.producer == stats.attached_producers[2]
    assert stats.consumer is not None
    assert stats.consumer.slot == consumer.slot
    assert (stats.producers, stats.priorities, stats.loop) == (PRODUCERS, PRIORITIES, False)
    assert stats.buffers == PRODUCERS * PRIORITIES * (SLOTS + stats.loans + stats.holds)


def test_a_successor_cancels_and_continues(channel: Channel) -> None:
    producer = channel.producer(1)
    kept, gone = producer.push(b"kept", priority=1), producer.push(b"gone", priority=1)
    producer.close()
    successor = channel.producer(1)
    assert successor.cancel(gone.handle)
    assert not successor.cancel(gone.handle)
    assert successor.push(b"next", priority=1).position == kept.position + 2
    assert data_of(drain(channel.consumer())) == [b"kept", b"next"]
    require_whole(channel)


# -- order ------------------------------------------------------------------------------------------------


def test_the_highest_priority_comes_first(channel: Channel) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    for n, priority in enumerate((0, 1, 0, 1, 0)):
        producer.push(b"%d" % n, priority=priority)
    assert data_of(drain(consumer)) == [b"1", b"3", b"0", b"2", b"4"]
    producer.push(b"low")
    producer.push(b"high", None, 1)
    assert bytes(consumer.pop(0)) == b"high"
    producer.push(b"higher", priority=1)
    assert data_of(drain(consumer)) == [b"higher", b"low"], "also if it came later"


def test_producers_of_one_priority_come_in_turn(channel: Channel) -> None:
    producers, consumer = all_producers(channel), channel.consumer()
    for producer in producers:
        for n in range(SLOTS):
            producer.push(b"%d" % n)
    found = [(number, data) for data, number, *_ in drain(consumer)]
    assert found == [(number, b"%d" % n) for n in range(SLOTS) for number in range(PRODUCERS)]


def test_no_producer_waits_for_more_than_one_datum_of_each_other(channel: Channel) -> None:
    """Two are always full; the third gets its turn each time."""
    producers, consumer = all_producers(channel), channel.consumer()
    for lap in range(6):
        for producer in producers[:2]:
            for _ in range(SLOTS):
                producer.push(b"flood")
        producers[2].push(b"%d" % lap)
        found = []
        for _ in range(PRODUCERS):
            with consumer.pop(0) as item:
                found.append(item.producer)
        assert sorted(found) == [0, 1, 2]


def test_turns_are_counted_for_each_priority(channel: Channel) -> None:
    producers, consumer = all_producers(channel), channel.consumer()
    for producer, priority in itertools.product(producers, range(PRIORITIES)):
        producer.push_batch([b"a", b"b"], priority=priority)
    found = [(priority, number) for _, number, priority, _ in drain(consumer)]
    assert found == [(priority, number) for priority in (1, 0) for _ in range(2) for number in range(3)]


def test_positions_are_counted_for_each_producer_and_priority(channel: Channel) -> None:
    first, second, _ = all_producers(channel)
    begin = first.push(b"x").position
    assert first.push(b"x").position == begin + 1
    assert first.push(b"x", priority=1).position == begin
    assert second.push(b"x").position == begin


# -- overflow ---------------------------------------------------------------------------------------------


def test_an_overflow_displaces_only_data_of_its_own(channel: Channel) -> None:
    producers, consumer = all_producers(channel), channel.consumer()
    for producer, priority in itertools.product(producers, range(PRIORITIES)):
        producer.push(b"%d%d" % (producer.number, priority), priority=priority)
    gone = []
    for n in range(5):
        pushed = producers[1].push(b"new%d" % n, priority=1)
        if pushed.displaced is not None:
            gone.append(bytes(pushed.displaced.data))
    del pushed
    assert gone == [b"11", b"new0", b"new1"]
    assert drain(consumer) == [
        (b"01", 0, 1, 0), (b"new2", 1, 1, 3), (b"21", 2, 1, 0), (b"new3", 1, 1, 0), (b"new4", 1, 1, 0),
        (b"00", 0, 0, 0), (b"10", 1, 0, 0), (b"20", 2, 0, 0),
    ]  # fmt: skip
    stats = channel.stats()
    assert (stats.pushed, stats.displaced, stats.popped, stats.lost) == (11, 3, 8, 3)
    require_whole(channel)


def test_lost_is_counted_for_each_producer_and_priority(channel: Channel) -> None:
    producers, consumer = all_producers(channel), channel.consumer()
    wanted = {}
    for lane, (producer, priority) in enumerate(itertools.product(producers, range(PRIORITIES))):
        for _ in range(SLOTS + lane):
            producer.push(b"x", priority=priority)
        wanted[producer.number, priority] = lane
    assert consumer.behind == sum(SLOTS + lane for lane in range(PRODUCERS * PRIORITIES)), "over all lanes"
    lost = dict.fromkeys(wanted, 0)
    for _, number, priority, more in drain(consumer):
        lost[number, priority] += more
    assert lost == wanted
    require_whole(channel)


def test_each_priority_has_loans_of_its_own(runtime_directory: object) -> None:
    with Channel.create("c", slots=2, slot_size=8, loans=1, priorities=2) as channel:
        producer = channel.producer()
        loans = [producer.loan(priority=priority) for priority in range(2)]
        assert producer.loans == 2
        del loans
        assert producer.loans == 0
        require_whole(channel)


def test_holds_are_of_the_consumer_and_not_of_a_lane(channel: Channel) -> None:
    for producer in all_producers(channel):
        producer.push_batch([b"a", b"b"])
    consumer = channel.consumer()
    items = [consumer.pop(0) for _ in range(channel.stats().holds)]
    assert channel.stats().held == consumer.held == len(items)
    with pytest.raises(Exception, match="holds 4 items"):
        consumer.pop(0)
    items.clear()
    assert len(drain(consumer)) == 2


# -- batches, loans, arrays -------------------------------------------------------------------------------


def test_batches_and_loans_have_a_priority(channel: Channel) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    producer.push_batch([b"low", b"lower"])
    loan = producer.loan(4, priority=1)
    with loan as buffer:
        buffer[:] = b"loan"
    kept = producer.loan(4, priority=1)
    kept.data[:] = b"kept"
    producer.push_batch([b"high", kept], priority=1)
    assert [(data, priority) for data, _, priority, _ in drain(consumer)] == [
        (b"loan", 1), (b"high", 1), (b"kept", 1), (b"low", 0), (b"lower", 0)
    ]  # fmt: skip
    require_whole(channel)


def test_a_push_of_a_loan_has_the_priority_of_the_loan(channel: Channel) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(producer.loan(1, priority=1))
    producer.push(producer.loan(1, priority=1), priority=1)
    producer.push_batch([b"x", producer.loan(1, priority=1)])
    assert [priority for _, _, priority, _ in drain(consumer)] == [1, 1, 1], "the ring has three slots"
    asyncio.run(producer.apush(producer.loan(1, priority=1)))
    asyncio.run(producer.apush_batch([producer.loan(1, priority=1)]))
    assert [priority for _, _, priority, _ in drain(consumer)] == [1, 1]
    require_whole(channel)


def test_arrays_with_priorities(runtime_directory: object) -> None:
    with Channel.create("t", slots=2, dtype="i4", shape=2, producers=2, priorities=3) as channel:
        first: Any = channel.producer()
        second: Any = channel.producer()
        consumer = channel.consumer()
        first.push(numpy.array([1, 2], "i4"), priority=1)
        second.push_batch([numpy.array([3, 4], "i4")], priority=2)
        with second.loan(priority=2) as frame:
            frame[:] = 5
        loan = first.loan(priority=1)
        first.push(loan)
        assert loan.pushed is not None
        found = []
        while not consumer.empty:
            with consumer.pop(0) as item:
                found.append((item.array.tolist(), item.producer, item.priority))
        assert found[:3] == [([3, 4], 1, 2), ([5, 5], 1, 2), ([1, 2], 0, 1)]
        assert [(number, priority) for _, number, priority in found[3:]] == [(0, 1)]
        require_whole(channel)


# -- waits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", range(PRIORITIES))
@pytest.mark.parametrize("number", range(PRODUCERS))
def test_any_producer_wakes_the_consumer(channel: Channel, number: int, priority: int) -> None:
    producers, consumer = all_producers(channel), channel.consumer()

    async def main() -> tuple[int, int]:
        waiting = asyncio.create_task(consumer.apop(5))
        await asyncio.sleep(0)
        await producers[number].apush(b"x", priority=priority)
        with await waiting as item:
            return item.producer, item.priority

    assert asyncio.run(main()) == (number, priority)


def test_without_overflow_a_push_waits_for_its_own_priority(runtime_directory: object) -> None:
    with Channel.create("c", slots=2, slot_size=8, overflow=False, producers=2, priorities=2) as channel:
        producer, other, consumer = channel.producer(), channel.producer(), channel.consumer()
        producer.push_batch([b"1", b"2"], priority=1)
        with pytest.raises(Full, match="no free slot for this push"):
            producer.push(b"3", timeout=0, priority=1)
        with pytest.raises(Timeout, match="push_batch after"):
            producer.push_batch([b"3"], timeout=0.001, priority=1)
        producer.push(b"low", timeout=0)
        other.push(b"other", timeout=0, priority=1)

        async def main() -> None:
            waiting = asyncio.create_task(producer.apush(b"3", timeout=20, priority=1))
            batch = asyncio.create_task(producer.apush_batch([b"4"], timeout=20, priority=1))
            await asyncio.sleep(0)
            for wanted in (b"1", b"other", b"2"):
                with await consumer.apop(5) as item:
                    assert bytes(item) == wanted
            await waiting
            await batch

        asyncio.run(main())
        assert sorted(data_of(drain(consumer))) == [b"3", b"4", b"low"]
        require_whole(channel)


def test_nothing_to_pop_from_any_producer(channel: Channel) -> None:
    consumer = channel.consumer()
    with pytest.raises(Empty, match="no process has the producer's role"):
        consumer.pop(0)
    producer = channel.producer(2)
    with pytest.raises(Empty, match="none of its producers has pushed anything new"):
        consumer.pop(0)
    producer.push(b"x")
    consumer.pop(0).release()
    with pytest.raises(Empty):
        consumer.pop(0)


# -- the largest channel ----------------------------------------------------------------------------------


def test_the_largest_number_of_producers_and_priorities(runtime_directory: Path) -> None:
    """Each of 128 lanes has 24 KiB beside its buffers, as the guide says."""
    with Channel.create("c", slots=2, slot_size=64, loans=2, holds=4, producers=16, priorities=8) as channel:
        lanes, buffers = 16 * 8, 2 + 2 + 4
        size = (runtime_directory / "holdfast.channel.c").stat().st_size
        assert size == lanes * (24 * 1024 + 4096), "eight buffers of 64 bytes round up to a page"
        producers, consumer = all_producers(channel), channel.consumer()
        for producer, priority in itertools.product(producers, range(8)):
            producer.push(b"%d/%d" % (producer.number, priority), priority=priority)
        assert channel.stats().buffers == lanes * buffers
        assert channel.stats().ready == lanes
        found = data_of(drain(consumer))
        assert found == [
            b"%d/%d" % (number, priority) for priority in range(7, -1, -1) for number in range(16)
        ]
        require_whole(channel)


def test_positions_end_for_each_lane(runtime_directory: Path) -> None:
    """A priority whose positions are used up does not end the others."""
    last = 1 << 62
    _core.create_channel(
        str(runtime_directory), "old", slots=2, slot_size=8, loans=3, holds=2, overflow=True, laps=100,
        producers=2, priorities=2, loop=False, dtype="", shape="", mode=0o600, group=-1,
        first_position=last - 2,
    )  # fmt: skip
    with Channel.open("old") as channel:
        first, second, consumer = channel.producer(), channel.producer(), channel.consumer()
        first.push_batch([b"1", b"2"], priority=1)
        assert channel.stats().positions_left == 0
        with pytest.raises(HoldfastError, match="used up its 62 bits of positions"):
            first.push(b"3", priority=1)
        first.push(b"low")
        second.push(b"other", priority=1)
        assert sorted(data_of(drain(consumer))) == [b"1", b"2", b"low", b"other"]
        require_whole(channel)
