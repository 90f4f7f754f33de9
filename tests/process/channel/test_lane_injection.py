"""Kill one of several producers at every named point; the others are not disturbed.

For each point the victim died there, by SIGKILL. Its lane is as after the death of a single producer. The
other lanes are as if it had never been.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from holdfast import Channel, ChannelConsumer, Empty, Misuse, _core
from tests.kit.processes import Start

KILLED = -signal.SIGKILL
SLOTS, PRODUCERS, PRIORITIES = 2, 3, 2
VICTIM, PRIORITY = 1, 1
OTHERS = (0, 2)

PUSH_NOT = ["push_begin", "push_frozen", "push_written", "push_ended"]
PUSH = [*PUSH_NOT, "push_published"]
POP_BEFORE = ["pop_inspected", "pop_read", "pop_claimed"]
POP_AFTER = ["pop_taken", "pop_noted", "released"]
ROLE = ["role_taken", "mend_begin", "mend_slot", "mend_owner"]
SINGLE = ["push_inner", "pop_jumped", "cancelled"]

Lanes = dict[tuple[int, int], list[bytes]]
"""Data by producer and priority, in the order of pops."""


def test_every_point_is_covered() -> None:
    assert {*PUSH, *POP_BEFORE, *POP_AFTER, *ROLE, *SINGLE} == {*_core.channel_points()}


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=SLOTS, slot_size=16, producers=PRODUCERS, priorities=PRIORITIES) as made:
        yield made


def drain(consumer: ChannelConsumer) -> tuple[Lanes, Lanes]:
    """Return all data, and `lost` of each lane as a list of that length."""
    found: Lanes = {}
    lost: Lanes = {}
    with suppress(Empty):
        while True:
            with consumer.pop(0) as item:
                lane = item.producer, item.priority
                found.setdefault(lane, []).append(bytes(item))
                lost.setdefault(lane, []).extend([b""] * item.lost)
    return found, {lane: each for lane, each in lost.items() if each}


def require_whole(channel: Channel) -> None:
    """Check that every buffer comes back, with new roles, for several laps of each lane."""
    with channel.consumer() as consumer:
        drain(consumer)
        for number, priority in itertools.product(range(PRODUCERS), range(PRIORITIES)):
            with channel.producer(number) as producer:
                for lap in range(2):
                    data = [b"%d/%d" % (lap, n) for n in range(2 * SLOTS)]
                    for each in data:
                        producer.push(each, priority=priority)
                    assert drain(consumer)[0] == {(number, priority): data[SLOTS:]}
                loans = [producer.loan(priority=priority) for _ in range(channel.stats().loans)]
                del loans
        stats = channel.stats()
        assert (stats.free, stats.held, stats.ready) == (stats.buffers, 0, 0)
    assert channel.check() == []


def fill(channel: Channel, number: int, count: int, priority: int = PRIORITY) -> None:
    with channel.producer(number) as producer:
        for n in range(count):
            producer.push(b"%d" % n, priority=priority)


def victim_push(point: str, number: int, batch: list[bytes], priority: int) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer(number)
    _core.arm(point, "kill", 1)
    producer.push_batch(batch, priority=priority)


def victim_cancel(point: str, number: int, priority: int) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer(number)
    pushed = producer.push(b"wrong", priority=priority)
    _core.arm(point, "kill", 1)
    producer.cancel(pushed.handle)


def victim_pop(point: str) -> None:
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    _core.arm(point, "kill", 1)
    with consumer.pop(0) as item:
        bytes(item)


def victim_role(point: str, number: int | None) -> None:
    """Take a producer's role, or with None the consumer's."""
    from holdfast import Channel

    channel = Channel.open("c")
    _core.arm(point, "kill", 1)
    if number is None:
        channel.consumer()
    else:
        channel.producer(number)


@pytest.mark.parametrize("count", [0, 1, SLOTS])
@pytest.mark.parametrize("point", PUSH)
def test_others_continue_beside_a_dead_producer(
    channel: Channel, start: Start, point: str, count: int
) -> None:
    """Before any recovery: the victim's role is not taken until the end."""
    others, consumer = [channel.producer(number) for number in OTHERS], channel.consumer()
    fill(channel, VICTIM, count)
    start(victim_push, point, VICTIM, [b"victim"], PRIORITY).wait(KILLED)
    wanted = [b"%d" % n for n in range(int(count == SLOTS and point != "push_begin"), count)]
    wanted += [b"victim"] if point == "push_published" else []
    lost = int(count == SLOTS and point != "push_begin")
    found: Lanes = {}
    seen = 0
    for lap in range(3):
        for producer, priority in itertools.product(others, range(PRIORITIES)):
            for n in range(SLOTS + 1):
                producer.push(b"%d/%d" % (lap, n), 0, priority)
        more, more_lost = drain(consumer)
        for lane in itertools.product(OTHERS, range(PRIORITIES)):
            assert more.pop(lane) == [b"%d/%d" % (lap, n) for n in range(1, SLOTS + 1)]
            assert len(more_lost.pop(lane)) == 1
        for lane, data in more.items():
            found.setdefault(lane, []).extend(data)
        seen += sum(map(len, more_lost.values()))
    assert found == ({(VICTIM, PRIORITY): wanted} if wanted else {})
    with channel.producer() as successor:
        assert successor.number == VICTIM, "the dead producer's number is free"
        successor.push(b"after", priority=PRIORITY)
        more, more_lost = drain(consumer)
    assert more == {(VICTIM, PRIORITY): [b"after"]}
    assert seen + sum(map(len, more_lost.values())) == lost
    for producer in others:
        producer.close()
    consumer.close()
    require_whole(channel)


@pytest.mark.parametrize("point", [*PUSH_NOT, "push_inner", "push_published"])
def test_a_batch_with_priority_is_pushed_whole_or_not(channel: Channel, start: Start, point: str) -> None:
    fill(channel, VICTIM, 1)
    fill(channel, VICTIM, 1, priority=0)
    start(victim_push, point, VICTIM, [b"a", b"b"], PRIORITY).wait(KILLED)
    with channel.consumer() as consumer:
        found, _ = drain(consumer)
    kept = [b"0"] if point == "push_begin" else []
    high = [b"a", b"b"] if point == "push_published" else kept
    assert found == {(VICTIM, 0): [b"0"]} | ({(VICTIM, PRIORITY): high} if high else {})
    require_whole(channel)


def test_death_after_cancelling(channel: Channel, start: Start) -> None:
    fill(channel, 0, 1)
    start(victim_cancel, "cancelled", VICTIM, PRIORITY).wait(KILLED)
    with channel.consumer() as consumer:
        assert drain(consumer) == ({(0, PRIORITY): [b"0"]}, {})
    require_whole(channel)


@pytest.mark.parametrize("point", [*POP_BEFORE, *POP_AFTER])
def test_death_in_a_pop_among_lanes(channel: Channel, start: Start, point: str) -> None:
    """The datum of the highest priority was being taken; all other lanes are untouched."""
    producers = [channel.producer(number) for number in range(PRODUCERS)]
    producers[0].push(b"low")
    for number in OTHERS:
        producers[number].push(b"first", priority=PRIORITY)
        producers[number].push(b"second", priority=PRIORITY)
    start(victim_pop, point).wait(KILLED)
    for producer in producers:
        producer.push(b"later", 0, priority=0)
    with channel.consumer() as consumer:
        gone = point in POP_AFTER
        assert drain(consumer)[0] == {
            (0, 0): [b"low", b"later"],
            (1, 0): [b"later"],
            (2, 0): [b"later"],
            (0, PRIORITY): [b"second"] if gone else [b"first", b"second"],
            (2, PRIORITY): [b"first", b"second"],
        }
    for producer in producers:
        producer.close()
    require_whole(channel)


def test_death_in_a_jump(channel: Channel, start: Start) -> None:
    fill(channel, VICTIM, SLOTS + 4)
    fill(channel, 0, 1, priority=0)
    start(victim_pop, "pop_jumped").wait(KILLED)
    with channel.consumer() as consumer:
        found, lost = drain(consumer)
    assert found == {(VICTIM, PRIORITY): [b"%d" % n for n in range(4, SLOTS + 4)], (0, 0): [b"0"]}
    assert {lane: len(each) for lane, each in lost.items()} == {(VICTIM, PRIORITY): 4}
    require_whole(channel)


@pytest.mark.parametrize(
    ("point", "number"), [*((point, VICTIM) for point in ROLE), ("role_taken", None), ("mend_owner", None)]
)
def test_death_in_taking_a_role(channel: Channel, start: Start, point: str, number: int | None) -> None:
    """A recovery that died is repeated by the next participant; other producers stay attached (R1)."""
    others = [channel.producer(each) for each in OTHERS]
    fill(channel, VICTIM, SLOTS)
    start(victim_pop, "pop_noted").wait(KILLED)
    start(victim_push, "push_ended", VICTIM, [b"a", b"b"], PRIORITY).wait(KILLED)
    if point == "mend_owner":  # the producer that came later has repaired the consumer's buffers
        fill(channel, VICTIM, 1)
        start(victim_pop, "pop_taken").wait(KILLED)
    start(victim_role, point, number).wait(KILLED)
    for producer in others:
        producer.push(b"other", 0, PRIORITY)
        with pytest.raises(Misuse, match=f"has producer {producer.number} already"):
            channel.producer(producer.number)
    with channel.consumer() as consumer:
        found, _ = drain(consumer)
        assert b"a" not in found.get((VICTIM, PRIORITY), [])
        assert [found[each, PRIORITY] for each in OTHERS] == [[b"other"]] * 2
    for producer in others:
        producer.close()
    require_whole(channel)
