"""Call every operation of a channel, in one process."""

from __future__ import annotations

import asyncio
import pickle
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Channel, ChannelConsumer, ChannelProducer, Empty, Full, Queue, Timeout, _core

SLOTS = 3
Pair = tuple[Channel, ChannelProducer, ChannelConsumer]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    with Channel.create("c", slots=SLOTS, slot_size=64) as channel:
        yield channel, channel.producer(), channel.consumer()


def drain(consumer: ChannelConsumer) -> list[tuple[bytes, int]]:
    found = []
    while not consumer.empty:
        with consumer.pop(0) as item:
            found.append((bytes(item.data), item.lost))
    return found


def require_whole(channel: Channel) -> None:
    """Check that no buffer is missing."""
    stats = channel.stats()
    assert (stats.held, stats.ready + stats.free) == (0, stats.buffers)
    assert channel.check() == []


def test_data_arrive_in_order_with_their_length(pair: Pair) -> None:
    channel, producer, consumer = pair
    assert consumer.empty
    assert not producer.full
    for data in (b"", b"x", b"y" * 64):
        pushed = producer.push(data)
        assert pushed.displaced is None
    assert producer.full
    assert not consumer.empty
    assert consumer.behind == 3
    assert drain(consumer) == [(b"", 0), (b"x", 0), (b"y" * 64, 0)]
    assert consumer.behind == 0
    require_whole(channel)


def test_an_overflow_displaces_the_oldest_and_counts_it(pair: Pair) -> None:
    channel, producer, consumer = pair
    gone = []
    for n in range(20):
        pushed = producer.push(b"%d" % n)
        if pushed.displaced is not None:
            gone.append((bytes(pushed.displaced.data), pushed.position - pushed.displaced.position))
    assert gone == [(b"%d" % n, SLOTS) for n in range(17)]
    del pushed
    assert consumer.behind == 20 > SLOTS
    assert drain(consumer) == [(b"17", 17), (b"18", 0), (b"19", 0)]
    stats = channel.stats()
    assert (stats.pushed, stats.displaced, stats.popped, stats.lost) == (20, 17, 3, 17)
    require_whole(channel)


def test_a_displaced_datum_is_kept_until_it_is_dropped(pair: Pair) -> None:
    _, producer, _ = pair
    kept = [producer.push(b"%d" % n) for n in range(2 * SLOTS)]
    assert producer.loans == SLOTS
    displaced = kept[-1].displaced
    assert displaced is not None
    view = displaced.data
    assert view.readonly
    displaced.release()
    assert producer.loans == SLOTS
    assert bytes(view) == b"2"
    view.release()
    assert producer.loans == SLOTS - 1
    del kept, displaced
    assert producer.loans == 0


def test_a_loan_is_written_in_place_and_pushed_at_the_end(pair: Pair) -> None:
    channel, producer, consumer = pair
    loan = producer.loan(5)
    with loan as buffer:
        assert (len(buffer), buffer.readonly, consumer.empty) == (5, False, True)
        buffer[:] = b"hello"
    assert loan.pushed is not None
    assert loan.pushed.displaced is None
    assert drain(consumer) == [(b"hello", 0)]
    with pytest.raises(ValueError, match="released"):
        buffer[0] = 1
    whole = producer.loan()
    assert len(whole) == 64
    pushed = producer.push(whole)
    assert pushed.position == loan.pushed.position + 1
    assert len(drain(consumer)) == 1
    require_whole(channel)


def test_an_exception_gives_the_loan_back(pair: Pair) -> None:
    channel, producer, consumer = pair
    with pytest.raises(TypeError), producer.loan() as buffer:
        buffer[0] = "text"  # type: ignore[call-overload]
    assert producer.loans == 0
    assert consumer.empty
    require_whole(channel)


def test_a_batch_is_visible_at_once(pair: Pair) -> None:
    channel, producer, consumer = pair
    producer.push(b"old")
    gone: list[bytes] = []
    loan = producer.loan(1)
    pushed = producer.push_batch([b"a", bytearray(b"b"), loan], lambda each: gone.append(bytes(each.data)))
    assert gone == [b"old"]
    assert [each.displaced for each in pushed] == [None] * 3
    assert [data for data, _ in drain(consumer)][:2] == [b"a", b"b"]
    assert producer.push_batch([]) == []
    for n in range(2):
        pushed = producer.push_batch([b"%d%d" % (n, each) for each in range(SLOTS)])
    assert [bytes(each.displaced.data) for each in pushed if each.displaced] == [b"00", b"01", b"02"]
    del pushed
    drain(consumer)
    require_whole(channel)


def test_every_callback_runs_although_one_fails(pair: Pair) -> None:
    _, producer, consumer = pair
    producer.push_batch([b"a", b"b"])
    seen = []

    def fail_once(each: object) -> None:
        seen.append(each)
        if len(seen) == 1:
            raise KeyError("of the first")

    with pytest.raises(KeyError, match="of the first"):
        producer.push_batch([b"c", b"d", b"e"], fail_once)
    assert len(seen) == 2
    assert [data for data, _ in drain(consumer)] == [b"c", b"d", b"e"]


def test_cancel_withdraws_a_datum_once(pair: Pair) -> None:
    channel, producer, consumer = pair
    first, second, third = (producer.push(each) for each in (b"1", b"2", b"3"))
    assert producer.cancel(second.handle)
    assert not producer.cancel(second.handle)
    assert drain(consumer) == [(b"1", 0), (b"3", 0)]
    assert not producer.cancel(first.handle)
    assert not producer.cancel(third.handle)
    old = producer.push(b"old").handle
    for _ in range(SLOTS):
        producer.push(b"new")
    assert not producer.cancel(old), "its slot has another datum now"
    assert channel.stats().cancelled == 1
    drain(consumer)
    require_whole(channel)


def test_without_overflow_a_push_waits(runtime_directory: object) -> None:
    with Channel.create("c", slots=2, slot_size=8, overflow=False) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        producer.push_batch([b"1", b"2"])
        with pytest.raises(Full, match="no free slot for this push: its data wait for the consumer"):
            producer.push(b"3", timeout=0)
        with pytest.raises(Timeout, match="push after"):
            producer.push(b"3", timeout=0.001)
        with pytest.raises(Full), producer.loan(timeout=0) as buffer:
            buffer[:] = b"12345678"
        assert producer.loans == 0
        assert bytes(consumer.pop(0).data) == b"1"
        producer.push(b"3", timeout=0)
        assert drain(consumer) == [(b"2", 0), (b"3", 0)]
        require_whole(channel)


def test_nothing_to_pop(pair: Pair) -> None:
    channel, producer, consumer = pair
    with pytest.raises(
        Empty, match=r"no datum for this pop: the producer \(pid \d+\) has pushed nothing new"
    ):
        consumer.pop(0)
    with pytest.raises(Timeout, match=r"after 0\.0"):
        consumer.pop(timeout=0.001)
    producer.close()
    with pytest.raises(Empty, match="no process has the producer's role"):
        consumer.pop(0)
    assert channel.check() == []


def test_a_role_is_free_after_close_and_the_next_one_continues(pair: Pair) -> None:
    channel, producer, consumer = pair
    producer.push(b"1")
    producer.push(b"2")
    producer.close()
    assert bytes(consumer.pop(0).data) == b"1"
    consumer.close()
    producer, consumer = channel.producer(), channel.consumer()
    last = producer.push(b"3")
    assert drain(consumer) == [(b"2", 0), (b"3", 0)]
    assert last.position == 6
    require_whole(channel)


def test_loops(pair: Pair) -> None:
    _, producer, consumer = pair
    producer.push_batch([b"1", b"2"])
    found = []
    for item in consumer:
        found.append(bytes(item))
        if len(found) == 2:
            break
    assert found == [b"1", b"2"]


def test_asyncio_with_a_queue_and_a_channel_at_once(pair: Pair) -> None:
    _, producer, consumer = pair

    async def main() -> list[bytes]:
        with Queue.create("q", capacity=1 << 12) as queue:
            first = asyncio.create_task(consumer.apop(5))
            second = asyncio.create_task(queue.aget(5))
            await asyncio.sleep(0)
            queue.put(b"message")
            producer.push(b"datum")
            with await first as item, await second as message:
                return [bytes(item.data), bytes(message.data)]

    assert asyncio.run(main()) == [b"datum", b"message"]


def test_asyncio_without_overflow(runtime_directory: object) -> None:
    async def main() -> None:
        with Channel.create("c", slots=1, slot_size=8, overflow=False) as channel:
            producer, consumer = channel.producer(), channel.consumer()
            await producer.apush(b"1")
            with pytest.raises(Timeout):
                await producer.apush_batch([b"2"], timeout=0.001)
            later = asyncio.create_task(producer.apush(b"2", timeout=20))
            await asyncio.sleep(0)
            (await consumer.apop()).release()
            await later
            async for item in consumer:
                assert bytes(item.data) == b"2"
                break

    asyncio.run(main())


def test_the_descriptor_of_a_consumer(pair: Pair) -> None:
    _, producer, consumer = pair
    consumer.arm()
    producer.push(b"x")
    assert select.select([consumer], [], [], 5.0)[0] == [consumer]
    assert drain(consumer) == [(b"x", 0)]


def test_one_thread_waits_for_a_queue_and_a_channel(pair: Pair) -> None:
    """After 50 ms a descriptor is also readable without a change: look again."""
    _, producer, consumer = pair
    with Queue.create("q", capacity=1 << 12) as queue:
        changes: dict[Queue | ChannelConsumer, Callable[[], object]] = {
            consumer: lambda: producer.push(b"datum"),
            queue: lambda: queue.put(b"message"),
        }
        for changed, change in changes.items():
            for each in changes:
                each.arm()
            change()
            while changed not in select.select([*changes], [], [], 5.0)[0]:
                pass
        assert drain(consumer) == [(b"datum", 0)]
        with queue.get(0) as message:
            assert bytes(message.data) == b"message"


def test_a_channel_is_pickled_by_its_name(pair: Pair) -> None:
    channel, producer, _ = pair
    producer.push(b"x")
    with pickle.loads(pickle.dumps(channel)) as other:
        assert other.stats().ready == 1


def test_stats_name_the_roles(pair: Pair) -> None:
    channel, producer, consumer = pair
    producer.push(b"123")
    item = consumer.pop()
    stats = channel.stats()
    assert stats.producer is not None
    assert stats.producer.slot == producer.slot
    assert stats.consumer is not None
    assert stats.consumer.slot == consumer.slot
    assert (stats.held, stats.ready, stats.pushed_bytes) == (1, 0, 3)
    item.release()
    consumer.close()
    assert channel.stats().consumer is None
    assert "closed" in repr(consumer)
    assert "c" in repr(channel)


def test_the_consumer_maps_the_data_read_only(runtime_directory: object) -> None:
    """A stray write of its program is a SIGSEGV (tests/process/channel/test_processes.py)."""

    def maps() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [each.split()[1] for each in lines if "holdfast.channel.mapped" in each]

    with Channel.create("mapped", slots=2, slot_size=8) as channel:
        producer = channel.producer()
        assert "r--s" not in maps()
        consumer = channel.consumer()
        assert "r--s" in maps()
        assert producer.attached
        assert consumer.attached


def test_exist_ok_meets_a_channel_that_is_removed(
    runtime_directory: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process unlinks the channel after it was found to exist, once."""
    Channel.create("c", slots=1, slot_size=8).close()
    create, calls = _core.create_channel, []

    def race(*args: Any, **keys: Any) -> None:
        calls.append(1)
        try:
            create(*args, **keys)
        finally:
            if len(calls) == 1:
                Channel.unlink("c")

    monkeypatch.setattr(_core, "create_channel", race)
    Channel.create("c", slots=1, slot_size=8, exist_ok=True).close()
    assert len(calls) == 2
