"""A loop: buffers come back through a ring of their own, and none is lost."""

from __future__ import annotations

import asyncio
import pickle
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import (
    Channel,
    ChannelConsumer,
    ChannelProducer,
    Corrupt,
    Full,
    LayoutMismatch,
    Loop,
    Misuse,
    _core,
)

SLOTS = 3
Pair = tuple[Loop, ChannelProducer, ChannelConsumer]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    with Loop.create("l", slots=SLOTS, slot_size=16, loans=2, holds=3) as loop:
        yield loop, loop.producer(), loop.consumer()


def drain(consumer: ChannelConsumer) -> list[tuple[bytes, int]]:
    found = []
    while not consumer.empty:
        with consumer.pop(0) as item:
            found.append((bytes(item), item.lost))
    return found


def require_whole(loop: Channel, ready: int = 0) -> None:
    """Check that every buffer is free, on its way back, or in the ring."""
    stats = loop.stats()
    assert (stats.held, stats.ready) == (0, ready)
    assert stats.free + stats.returning + stats.ready == stats.buffers
    assert loop.check() == []


def test_a_released_buffer_is_on_its_way_back(pair: Pair) -> None:
    loop, producer, consumer = pair
    producer.push_batch([b"1", b"2"])
    items = [consumer.pop(0), consumer.pop(0)]
    stats = loop.stats()
    assert (stats.held, stats.returning, stats.free) == (2, 0, 6)
    items.pop().release()
    stats = loop.stats()
    assert (stats.held, stats.returning, stats.free) == (1, 1, 6)
    items.clear()
    require_whole(loop)
    assert loop.stats().returning == 2
    loans = [producer.loan() for _ in range(2)]
    assert loop.stats().returning == 2, "buffers that never left are taken first"
    del loans


def test_the_producer_takes_all_buffers_back(pair: Pair) -> None:
    loop, producer, consumer = pair
    for lap in range(40):
        producer.push_batch([b"%d" % lap, b"x"])
        assert drain(consumer) == [(b"%d" % lap, 0), (b"x", 0)]
        require_whole(loop)
    assert loop.stats().pushed == loop.stats().released == 80
    assert loop.stats().recovered == 0


def test_a_loop_overflows_as_a_channel_does(pair: Pair) -> None:
    loop, producer, consumer = pair
    for n in range(20):
        producer.push(b"%d" % n)
    assert drain(consumer) == [(b"17", 17), (b"18", 0), (b"19", 0)]
    require_whole(loop)
    handle = producer.push(b"withdrawn").handle
    assert producer.cancel(handle)
    assert drain(consumer) == []
    require_whole(loop)


def test_items_come_back_in_another_order(pair: Pair) -> None:
    loop, producer, consumer = pair
    for lap in range(10):
        producer.push_batch([b"1", b"2"])
        items = [consumer.pop(0), consumer.pop(0)]
        for n in (lap % 2, 0):
            items.pop(n).release()
        require_whole(loop)


def test_views_keep_their_buffer_from_coming_back(pair: Pair) -> None:
    loop, producer, consumer = pair
    producer.push(b"mine")
    with consumer.pop(0) as item:
        view = item.data
    for n in range(30):
        producer.push(b"%16d" % n)
        assert bytes(view) == b"mine"
    assert loop.stats().held == 1
    drain(consumer)
    del item
    view.release()
    require_whole(loop)


def test_closed_roles_with_views(pair: Pair) -> None:
    """Buffers that views kept after close() are found by the search."""
    loop, producer, consumer = pair
    producer.push_batch([b"view"])
    view = consumer.pop(0).data
    loan = producer.loan(4)
    mine = loan.data
    consumer.close()
    producer.close()
    producer, consumer = loop.producer(), loop.consumer()
    for n in range(30):
        producer.push(b"%16d" % n)
        assert bytes(view) == b"view"
    drain(consumer)
    view.release()
    mine.release()
    require_whole(loop)
    kept = producer.loan(), producer.loan()
    del kept
    require_whole(loop)


def test_a_closed_consumer_does_not_push_back(pair: Pair) -> None:
    """The way back is its successor's: a view that ends later clears its owner alone."""
    loop, producer, consumer = pair
    producer.push_batch([b"view", b"next"])
    view = consumer.pop(0).data
    consumer.close()
    consumer = loop.consumer()
    view.release()
    assert drain(consumer) == [(b"next", 0)]
    assert loop.stats().returning == 1
    require_whole(loop)


def test_successors_find_all_buffers(pair: Pair) -> None:
    """Roles that change at any filling of the way back."""
    loop, producer, consumer = pair
    for n in range(1, 12):
        producer.push_batch([b"a", b"b"])
        assert len(drain(consumer)) == 2
        if n % 2:
            producer.close()
            producer = loop.producer()
        if n % 3:
            consumer.close()
            consumer = loop.consumer()
        require_whole(loop)


def test_without_overflow_a_released_buffer_wakes_the_producer(runtime_directory: object) -> None:
    with Loop.create("l", slots=1, slot_size=8, overflow=False) as loop:
        producer, consumer = loop.producer(), loop.consumer()
        producer.push(b"1")
        with pytest.raises(Full):
            producer.push(b"2", timeout=0)

        async def main() -> None:
            waiting = asyncio.create_task(producer.apush(b"2", timeout=20))
            await asyncio.sleep(0)
            with await consumer.apop(5) as item:
                assert bytes(item) == b"1"
            await waiting

        asyncio.run(main())
        assert drain(consumer) == [(b"2", 0)]
        require_whole(loop)


def test_a_release_notifies_a_producer_that_overflows(pair: Pair) -> None:
    """Also where no push waits: a program may wait for buffers that come back."""
    _, producer, consumer = pair
    producer.push(b"x")
    item = consumer.pop(0)
    producer.arm()
    item.release()
    assert select.select([producer], [], [], 5.0)[0] == [producer]


def test_arrays_in_a_loop(runtime_directory: object) -> None:
    with Loop.create("t", slots=2, dtype="f8", shape=(2,)) as loop:
        producer: Any = loop.producer()
        consumer = loop.consumer()
        for n in range(20):
            with producer.loan() as frame:
                frame[:] = n
            with consumer.pop(0) as item:
                assert (item.array == numpy.full(2, n)).all()
            del frame, item
        require_whole(loop)


def test_a_loop_is_pickled_and_opened_by_its_name(pair: Pair) -> None:
    loop, producer, _ = pair
    producer.push(b"x")
    with pickle.loads(pickle.dumps(loop)) as other:
        assert type(other) is Loop
        assert other.stats().ready == 1
        assert "holdfast.Loop 'l'" in repr(other)
    with Loop.open("l") as other:
        assert other.stats().loop


def test_a_channel_opens_a_loop(pair: Pair) -> None:
    """The class is for people: what a segment is stands in its header."""
    loop, producer, consumer = pair
    consumer.close()
    with Channel.open("l") as plain:
        consumer = plain.consumer()
        producer.push(b"x")
        consumer.pop(0).release()
        assert plain.stats().returning == 1
        consumer.close()
    require_whole(loop)
    assert Channel.list() == Loop.list() == ["l"]


def test_a_loop_is_not_a_channel(pair: Pair) -> None:
    with pytest.raises(LayoutMismatch, match="loop is True, not False"):
        Channel.create("l", slots=SLOTS, slot_size=16, loans=2, holds=3, exist_ok=True)
    with Channel.create("c", slots=SLOTS, slot_size=16, loans=2, holds=3) as plain:
        with pytest.raises(LayoutMismatch, match=r"channel c is not a loop; open it with Channel\.open"):
            Loop.open("c")
        with pytest.raises(LayoutMismatch, match="channel c is not a loop"):
            Loop.create("c", slots=SLOTS, slot_size=16, loans=2, holds=3, exist_ok=True)
        assert plain.stats().returning == 0
    with Loop.create("l", slots=SLOTS, slot_size=16, loans=2, holds=3, exist_ok=True) as same:
        assert same.stats().loop


@pytest.mark.parametrize("key", ["producers", "priorities"])
def test_a_loop_has_one_producer_and_one_priority(pair: Pair, key: str) -> None:
    more: dict[str, Any] = {key: 2}
    with pytest.raises(Misuse, match=f"{key} must be 1 in a loop, not 2"):
        Loop.create("n", slots=1, slot_size=8, **more)
    with pytest.raises(Misuse, match="has no producer 1: it has 1"):
        pair[0].producer(1)


def old_loop(directory: Path, first: int) -> Loop:
    _core.create_channel(
        str(directory), "old", slots=2, slot_size=8, loans=3, holds=2, overflow=True, laps=100,
        producers=1, priorities=1, loop=True, dtype="", shape="", mode=0o600, group=-1, first_position=first,
    )  # fmt: skip
    return Loop.open("old")


@pytest.mark.parametrize("first", [(1 << 16) - 3, (1 << 32) - 3, (1 << 53) - 3])
def test_positions_of_both_rings_pass_narrower_numbers(runtime_directory: Path, first: int) -> None:
    with old_loop(runtime_directory, first) as loop:
        producer, consumer = loop.producer(), loop.consumer()
        for n in range(30):
            assert producer.push(b"%d" % n).position == first + n
            assert drain(consumer) == [(b"%d" % n, 0)]
        require_whole(loop)


def test_the_last_positions_of_both_rings(runtime_directory: Path) -> None:
    """Buffers still come back when the way back has no positions left: by the search."""
    with old_loop(runtime_directory, (1 << 62) - 4) as loop:
        producer, consumer = loop.producer(), loop.consumer()
        for n in range(4):
            producer.push(b"%d" % n)
            consumer.pop(0).release()
        with pytest.raises(Exception, match="used up its 62 bits of positions"):
            producer.push(b"x")
        require_whole(loop)
        producer.close()
        with loop.producer() as successor:
            assert len([successor.loan() for _ in range(3)]) == 3
        require_whole(loop)


DAMAGE = {
    "index": (999, "index of a buffer"),
    "stray": (0, "a buffer that came back, and that the consumer did not have"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_of_the_way_back(runtime_directory: Path, case: str) -> None:
    """A buffer that the consumer did not have is refused; check() names the ring."""
    with old_loop(runtime_directory, 0) as loop:
        producer, consumer = loop.producer(), loop.consumer()
        producer.push(b"x")
        consumer.pop(0).release()
        back = _core.inspect_channel(str(runtime_directory), "old")["channel"]["back"]
        wrong, words = DAMAGE[case]
        path = runtime_directory / "holdfast.channel.old"
        seen = path.read_bytes()
        at = seen.rindex((back["end"] - 1).to_bytes(8, "little")) + 8
        wrong = wrong or (seen[at] + 1) % 7
        with path.open("r+b") as file:
            file.seek(at)
            file.write(wrong.to_bytes(4, "little"))
        named = any(each.startswith("the way back, ") and "999 does not" in each for each in loop.check())
        assert named == (case == "index")
        producer.push_batch([b"1", b"2"])
        kept = [consumer.pop(0), consumer.pop(0)]
        producer.push_batch([b"3", b"4"])
        loans = [producer.loan(), producer.loan()]  # all that the producer has
        with pytest.raises(Corrupt, match=words):
            producer.loan()
        del kept, loans
