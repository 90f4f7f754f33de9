"""Kill either side of a loop at every point of the way back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast import ChannelConsumer, Empty, Loop, _core
from tests.kit.processes import Start, hear, tell

KILLED = -signal.SIGKILL
SLOTS, LOANS, HOLDS = 2, 2, 2
POOL = SLOTS + LOANS + HOLDS

SEND_NOT = ["push_begin", "push_frozen", "push_written", "push_ended"]
SEND = [*SEND_NOT, "push_published"]
TAKE_NOT = ["pop_inspected", "pop_read", "pop_claimed"]
TAKE = [*TAKE_NOT, "pop_taken", "pop_noted"]
ROLE = ["role_taken", "mend_begin", "mend_slot", "mend_owner"]


@pytest.fixture
def loop(runtime_directory: object) -> Iterator[Loop]:
    with Loop.create("l", slots=SLOTS, slot_size=16, loans=LOANS, holds=HOLDS) as made:
        yield made


def drain(consumer: ChannelConsumer) -> list[bytes]:
    found = []
    with suppress(Empty):
        while True:
            with consumer.pop(0) as item:
                found.append(bytes(item))
    return found


def require_whole(loop: Loop) -> None:
    """Check that every buffer comes back, with new roles, for several laps of both rings."""
    with loop.producer() as producer, loop.consumer() as consumer:
        drain(consumer)
        for lap in range(3 * POOL):
            producer.push(b"%d" % lap, 0)
            items = [consumer.pop(0)]
            producer.push(b"x", 0)
            items.append(consumer.pop(0))
            producer.push_batch([b"y", b"z"], timeout=0)
            loans = [producer.loan() for _ in range(LOANS)]  # now each buffer is in a hand
            stats = loop.stats()
            assert (stats.held, stats.ready, stats.free) == (HOLDS, SLOTS, LOANS)
            del loans, items
            assert drain(consumer) == [b"y", b"z"]
        stats = loop.stats()
        assert (stats.free + stats.returning, stats.held, stats.ready) == (POOL, 0, 0)
    assert loop.check() == []


def victim_release(point: str, before: int) -> None:
    """Release some items, and die in the release of the next one."""
    from holdfast import Loop

    consumer = Loop.open("l").consumer()
    for _ in range(before):
        consumer.pop(0).release()
    item = consumer.pop(0)
    _core.arm(point, "kill", 1)
    item.release()


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("point", SEND)
def test_death_of_the_consumer_in_a_push_back(loop: Loop, start: Start, point: str, before: int) -> None:
    with loop.producer() as producer:
        producer.push_batch([b"1", b"2"])
        start(victim_release, point, before).wait(KILLED)
        sent = before + (point == "push_published")
        stats = loop.stats()
        assert (stats.returning, stats.held) == (sent, before + 1 - sent)
        for n in range(4 * POOL):  # the producer is not hindered
            producer.push(b"%d" % n, 0)
            with producer.loan(timeout=0), producer.loan(timeout=0) as buffer:
                buffer[:1] = b"x"
        assert loop.check() == []
        with loop.consumer() as consumer:
            assert len(drain(consumer)) == SLOTS
    require_whole(loop)


def victim_take_back(point: str) -> None:
    """Push until a buffer must be taken back, and die there."""
    from holdfast import Loop

    producer = Loop.open("l").producer()
    for _ in range(6):
        producer.push(b"x")
        tell("pushed")
        hear()
    _core.arm(point, "kill", 1)
    producer.push(b"victim")


@pytest.mark.parametrize("point", TAKE)
def test_death_of_the_producer_in_taking_back(loop: Loop, start: Start, point: str) -> None:
    with loop.consumer() as consumer:
        child = start(victim_take_back, point)
        for _ in range(POOL):
            assert child.hear() == "pushed"
            consumer.pop(0).release()
            child.tell("go")
        child.wait(KILLED)
        stats = loop.stats()
        taken = point not in TAKE_NOT
        assert (stats.returning, stats.free) == (POOL - taken, int(taken))
        assert drain(consumer) == []
    require_whole(loop)


def victim_succeed(point: str, countdown: int, role: str) -> None:
    from holdfast import Loop

    loop = Loop.open("l")
    _core.arm(point, "kill", countdown)
    getattr(loop, role)()


@pytest.mark.parametrize("countdown", [1, 2, POOL])
@pytest.mark.parametrize("point", TAKE)
def test_death_of_a_successor_that_takes_back(loop: Loop, start: Start, point: str, countdown: int) -> None:
    """A producer that starts empties the way back, and dies in the midst of it."""
    with loop.producer() as producer, loop.consumer() as consumer:
        for _ in range(POOL):
            producer.push(b"x")
            consumer.pop(0).release()
        assert loop.stats().returning == POOL
    start(victim_succeed, point, countdown, "producer").wait(KILLED)
    taken = countdown - (point in TAKE_NOT)
    assert loop.stats().returning == POOL - taken
    require_whole(loop)


@pytest.mark.parametrize(
    ("point", "role"), [*((point, "consumer") for point in ROLE), ("role_taken", "producer")]
)
def test_death_in_taking_a_role(loop: Loop, start: Start, point: str, role: str) -> None:
    """The repair of the way back dies, too, and is repeated (R1)."""
    with loop.producer() as producer:
        producer.push_batch([b"1", b"2"])
        start(victim_release, "push_ended", 1).wait(KILLED)
        if role == "producer":
            producer.close()
        start(victim_succeed, point, 1, role).wait(KILLED)
    require_whole(loop)


def hold_all() -> None:
    from holdfast import Loop

    consumer = Loop.open("l").consumer()
    items = [consumer.pop(0), consumer.pop(0)]
    tell(len(items))
    hear()


def victim_notices() -> None:
    """Push until the consumer's death is noticed; die with the first buffer that is cleared."""
    from holdfast import Loop

    producer = Loop.open("l").producer()
    producer.push_batch([b"1", b"2"])
    tell("pushed")
    hear()
    _core.arm("mend_owner", "kill", 1)
    while True:
        producer.push(b"x")


def test_death_of_a_producer_that_clears_a_dead_consumer(loop: Loop, start: Start) -> None:
    """The kernel is asked now and then, although nothing waits for the buffers."""
    victim = start(victim_notices)
    assert victim.hear() == "pushed"
    holder = start(hold_all)
    assert holder.hear() == HOLDS
    holder.kill()
    victim.tell("go")
    victim.wait(KILLED)
    assert loop.stats().held == HOLDS - 1
    require_whole(loop)


@pytest.mark.parametrize("point", SEND)
def test_a_stopped_push_back_does_not_hinder_the_producer(loop: Loop, start: Start, point: str) -> None:
    with loop.producer() as producer:
        producer.push_batch([b"1", b"2"])
        child = start(stop_in_release, point)
        child.wait_stopped()
        for n in range(20 * POOL):
            producer.push(b"%d" % n, 0)
            with producer.loan(timeout=0) as buffer:
                buffer[:1] = b"x"
        assert loop.stats().held == int(point in SEND_NOT)
        assert loop.check() == []
        child.go_on()
        assert child.hear() == "released"
        child.wait()
    require_whole(loop)


def stop_in_release(point: str) -> None:
    from holdfast import Loop

    consumer = Loop.open("l").consumer()
    item = consumer.pop(0)
    _core.arm(point, "stop", 1)
    item.release()
    tell("released")
    consumer.close()
