"""Kill real processes at every named point of a channel, and check the survivors.

For each point, the victim died there, by SIGKILL. Each datum is delivered once, or counted as lost. Every
buffer is in exactly one hand (C1), and all of them come back.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast import Channel, ChannelConsumer, Empty, _core
from tests.kit.processes import Start

KILLED = -signal.SIGKILL
SLOTS = 3

PUSH_NOT = ["push_begin", "push_frozen", "push_written", "push_ended"]
BATCH_NOT = [*PUSH_NOT, "push_inner"]
POP_BEFORE = ["pop_inspected", "pop_read", "pop_claimed"]
POP_AFTER = ["pop_taken", "pop_noted", "released"]
ROLE = ["role_taken", "mend_begin", "mend_slot", "mend_owner"]
SINGLE = ["push_published", "pop_jumped", "cancelled"]


def test_every_point_is_covered() -> None:
    assert {*BATCH_NOT, *POP_BEFORE, *POP_AFTER, *ROLE, *SINGLE} == {*_core.channel_points()}


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=SLOTS, slot_size=16) as made:
        yield made


def drain(consumer: ChannelConsumer) -> tuple[list[bytes], int]:
    """Return all data that there are, and how many were lost before them."""
    found, lost = [], 0
    with suppress(Empty):
        while True:
            with consumer.pop(0) as item:
                found.append(bytes(item))
                lost += item.lost
    return found, lost


def require_whole(channel: Channel) -> None:
    """Check that every buffer comes back, with new roles, for several laps."""
    with channel.producer() as producer, channel.consumer() as consumer:
        drain(consumer)
        for lap in range(3):
            for n in range(2 * SLOTS):
                producer.push(b"%d/%d" % (lap, n))
            assert drain(consumer) == ([b"%d/%d" % (lap, n) for n in range(SLOTS, 2 * SLOTS)], SLOTS)
        loans = [producer.loan() for _ in range(channel.stats().loans)]
        del loans
        stats = channel.stats()
        assert (stats.free, stats.held, stats.ready) == (stats.buffers, 0, 0)
    assert channel.check() == []


def fill(channel: Channel, count: int) -> None:
    with channel.producer() as producer:
        for n in range(count):
            producer.push(b"%d" % n)


def victim_push(point: str, countdown: int, batch: list[bytes]) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer()
    _core.arm(point, "kill", countdown)
    producer.push_batch(batch)


def victim_cancel(point: str) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer()
    pushed = producer.push(b"wrong")
    _core.arm(point, "kill", 1)
    producer.cancel(pushed.handle)


def victim_pop(point: str) -> None:
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    _core.arm(point, "kill", 1)
    with consumer.pop(0) as item:
        bytes(item)


def victim_role(point: str, role: str, countdown: int) -> None:
    from holdfast import Channel

    channel = Channel.open("c")
    _core.arm(point, "kill", countdown)
    getattr(channel, role)()


@pytest.mark.parametrize("before_recovery", [True, False])
@pytest.mark.parametrize("count", [0, 1, SLOTS])
@pytest.mark.parametrize("point", [*PUSH_NOT, "push_published"])
def test_death_in_a_push(
    channel: Channel, start: Start, point: str, count: int, before_recovery: bool
) -> None:
    fill(channel, count)
    consumer = channel.consumer()
    start(victim_push, point, 1, [b"victim"]).wait(KILLED)
    found, lost = drain(consumer) if before_recovery else ([], 0)
    with channel.producer() as producer:
        producer.push(b"after")
    more, more_lost = drain(consumer)
    displaced = int(count == SLOTS and point != "push_begin")
    later = 0 if before_recovery or displaced or count < SLOTS else 1  # the last push displaces one
    if point == "push_published" and count == SLOTS - 1 + displaced and not before_recovery:
        later = 1
    wanted = [b"%d" % n for n in range(displaced, count)]
    wanted += [b"victim"] if point == "push_published" else []
    wanted += [b"after"]
    assert found + more == wanted[later:]
    assert lost + more_lost == displaced + later
    consumer.close()
    require_whole(channel)


@pytest.mark.parametrize("count", [0, 2, SLOTS])
@pytest.mark.parametrize("point", [*BATCH_NOT, "push_published"])
def test_death_in_a_batch_pushes_all_or_nothing(
    channel: Channel, start: Start, point: str, count: int
) -> None:
    fill(channel, count)
    start(victim_push, point, 1, [b"a", b"b"]).wait(KILLED)
    with channel.consumer() as consumer:
        found, lost = drain(consumer)
        displaced = 0 if point == "push_begin" else max(0, count + 2 - SLOTS)
        wanted = [b"%d" % n for n in range(displaced, count)]
        assert found == wanted + ([b"a", b"b"] if point == "push_published" else [])
        with channel.producer() as producer:
            producer.push(b"after")
        more, more_lost = drain(consumer)
        assert (more, lost + more_lost) == ([b"after"], displaced)
    require_whole(channel)


@pytest.mark.parametrize("point", [*POP_BEFORE, *POP_AFTER])
def test_death_in_a_pop(channel: Channel, start: Start, point: str) -> None:
    fill(channel, SLOTS)
    start(victim_pop, point).wait(KILLED)
    with channel.consumer() as consumer:
        first = 0 if point in POP_BEFORE else 1
        assert drain(consumer) == ([b"%d" % n for n in range(first, SLOTS)], 0)
    require_whole(channel)


def test_death_in_a_jump(channel: Channel, start: Start) -> None:
    fill(channel, SLOTS + 4)
    start(victim_pop, "pop_jumped").wait(KILLED)
    with channel.consumer() as consumer:
        assert drain(consumer) == ([b"%d" % n for n in range(4, SLOTS + 4)], 4)
    require_whole(channel)


def test_death_after_cancelling(channel: Channel, start: Start) -> None:
    start(victim_cancel, "cancelled").wait(KILLED)
    with channel.consumer() as consumer:
        assert drain(consumer) == ([], 0)
    require_whole(channel)


def leave_both(channel: Channel, start: Start) -> None:
    """Let a consumer die with an item, and a producer in a push."""
    fill(channel, SLOTS)
    start(victim_pop, "pop_noted").wait(KILLED)
    start(victim_push, "push_ended", 1, [b"a", b"b"]).wait(KILLED)


@pytest.mark.parametrize(
    ("point", "role"),
    [*((point, "producer") for point in ROLE), ("role_taken", "consumer"), ("mend_owner", "consumer")],
)
def test_death_in_taking_a_role(channel: Channel, start: Start, point: str, role: str) -> None:
    """A recovery that died is repeated by the next participant (R1)."""
    leave_both(channel, start)
    if point == "mend_owner":  # the producer that came later has repaired the consumer's buffers
        fill_one_and_die(channel, start)
    start(victim_role, point, role, 1).wait(KILLED)
    with channel.consumer() as consumer:
        found, _ = drain(consumer)
        assert b"a" not in found
    require_whole(channel)


def fill_one_and_die(channel: Channel, start: Start) -> None:
    fill(channel, 1)
    start(victim_pop, "pop_taken").wait(KILLED)
