"""Several producers and priorities: processes wait, stop, die, fork, or lose their descriptors."""

from __future__ import annotations

import functools
import itertools
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Channel, Misuse, _core
from tests.kit.processes import Child, Start, hear, tell, until
from tests.kit.slices import pick

PRODUCERS, PRIORITIES = 3, 2
KILLED = -signal.SIGKILL


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=4, slot_size=512, producers=PRODUCERS, priorities=PRIORITIES) as made:
        yield made


def require_exact(channel: Channel) -> None:
    """Check that every buffer comes back after all processes are dead."""
    with channel.consumer() as consumer:
        while not consumer.empty:
            consumer.pop(0).release()
        for number, priority in itertools.product(range(PRODUCERS), range(PRIORITIES)):
            with channel.producer(number) as producer:
                loans = [producer.loan(priority=priority) for _ in range(channel.stats().loans)]
                del loans
        stats = channel.stats()
        assert (stats.free, stats.held, stats.ready) == (stats.buffers, 0, 0)
    assert channel.check() == []


# -- a storm ----------------------------------------------------------------------------------------------


def produce(number: int, life: int) -> None:
    """Push for ever at both priorities, in each way; data of a life are numbered."""
    from holdfast import Channel

    producer = Channel.open("c").producer(number)
    tell("ready")
    n = life * 10**9
    while True:
        for priority in range(2):
            producer.push(b"%d:" % n + b"x" * (n % 400), priority=priority)
            producer.push_batch([b"%d:xx" % (n + 1), b"%d:" % (n + 2)], priority=priority)
            with producer.loan(40, priority=priority) as buffer:
                buffer[:] = (b"%d:" % (n + 3)).ljust(40, b"x")
            producer.cancel(producer.push(b"%d:" % (n + 4), priority=priority).handle)
        n += 5


def consume(hold: int) -> None:
    """Pop for ever; keep the last items; check the order of each lane."""
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    tell("ready")
    kept = []
    last: dict[tuple[int, int], int] = {}
    while True:
        item = consumer.pop()
        number, _, rest = bytes(item).partition(b":")
        lane = item.producer, item.priority
        assert int(number) > last.get(lane, -1), "in order, and none twice"
        assert rest == b"x" * len(rest), "not torn"
        last[lane] = int(number)
        kept.append(item)
        while len(kept) > hold:
            kept.pop(0).release()


def more_than(channel: Channel, popped: int) -> bool:
    return channel.stats().popped > popped


def ready(child: Child) -> Child:
    assert child.hear() == "ready"
    return child


def test_a_storm_of_kills_among_producers(channel: Channel, start: Start) -> None:
    """Each process is killed anywhere, and restarted; the account is exact."""
    choose = random.Random(7)
    producers = [ready(start(produce, number, 0)) for number in range(PRODUCERS)]
    consumer = ready(start(consume, 2))
    for life in range(1, pick(16, 400)):
        until(functools.partial(more_than, channel, channel.stats().popped))
        victim = choose.randrange(PRODUCERS + 1)
        if victim == PRODUCERS:
            consumer.kill()
            consumer = ready(start(consume, choose.randrange(4)))
        else:
            producers[victim].kill()
            producers[victim] = ready(start(produce, victim, life))
    for child in (*producers, consumer):
        child.kill()
    require_exact(channel)


# -- stopped processes ------------------------------------------------------------------------------------


def stop_in_push(point: str) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer(1)
    producer.push(b"before", priority=1)
    _core.arm(point, "stop", 1)
    producer.push(b"stopped", priority=1)
    tell("pushed")


@pytest.mark.parametrize(
    "point", ["push_begin", "push_frozen", "push_written", "push_ended", "push_published"]
)
def test_a_stopped_producer_hinders_no_other(channel: Channel, start: Start, point: str) -> None:
    child = start(stop_in_push, point)
    child.wait_stopped()
    with channel.producer() as other, channel.consumer() as consumer:
        with pytest.raises(Misuse, match=f"has producer 1 already: pid {child.pid}"):
            channel.producer(1)  # slow is not dead
        found = []
        for n in range(50):
            for priority in range(PRIORITIES):
                other.push(b"%d" % n, 0, priority)
            while not consumer.empty:
                with consumer.pop(0) as item:
                    found.append((item.producer, item.priority, bytes(item)))
        wanted = [b"before", b"stopped"] if point == "push_published" else [b"before"]
        assert [data for number, _, data in found if number == 1] == wanted
        for priority in range(PRIORITIES):
            data = [data for number, each, data in found if (number, each) == (0, priority)]
            assert data == [b"%d" % n for n in range(50)]
        child.go_on()
        assert child.hear() == "pushed"
        child.wait()
        if point != "push_published":
            with consumer.pop(0) as item:
                assert bytes(item) == b"stopped", "it completes its push when it continues"
    require_exact(channel)


# -- waits ------------------------------------------------------------------------------------------------


def pop_one() -> None:
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    consumer.spin = 0
    tell("ready")
    while True:
        with consumer.pop(20) as item:
            tell((item.producer, item.priority))


def test_each_producer_wakes_a_sleeping_consumer(channel: Channel, start: Start) -> None:
    child = ready(start(pop_one))
    producers = [channel.producer() for _ in range(PRODUCERS)]
    for number, priority in itertools.product(range(PRODUCERS), range(PRIORITIES)):
        producers[number].push(b"wake up", priority=priority)
        assert child.hear() == (number, priority)


def push_when_full(number: int, priority: int) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer(number)
    producer.spin = 0
    producer.push(b"1", 0, priority)
    tell("ready")
    producer.push(b"2", 20, priority)
    tell("pushed")


@pytest.mark.parametrize(("number", "priority"), [(0, 0), (0, 1), (1, 1)])
def test_a_pop_wakes_the_producer_of_its_lane(
    runtime_directory: object, start: Start, number: int, priority: int
) -> None:
    with Channel.create("c", slots=1, slot_size=8, overflow=False, producers=2, priorities=2) as channel:
        child = ready(start(push_when_full, number, priority))
        with channel.consumer() as consumer:
            consumer.pop(0).release()
            assert child.hear() == "pushed"
            with consumer.pop(0) as item:
                assert (item.producer, item.priority, bytes(item)) == (number, priority, b"2")
        child.wait()


def test_a_consumer_maps_the_data_of_all_lanes_read_only(channel: Channel) -> None:
    """A stray write of the consumer is a SIGSEGV in each lane."""
    with channel.consumer():
        lines = Path("/proc/self/maps").read_text().splitlines()
        kinds = [each.split()[1] for each in lines if "holdfast.channel.c" in each]
        assert kinds.count("r--s") == PRODUCERS * PRIORITIES


# -- numbers of dead producers ----------------------------------------------------------------------------


def be_producer(number: int | None) -> None:
    from holdfast import Channel

    producer = Channel.open("c").producer(number)
    producer.push(b"%d" % producer.number)
    tell(producer.number)
    hear()


def test_the_number_of_a_dead_producer_is_free(channel: Channel, start: Start) -> None:
    children = [start(be_producer, None)]
    assert children[0].hear() == 0
    children.append(start(be_producer, 2))
    assert children[1].hear() == 2
    with pytest.raises(Misuse, match=f"has producer 2 already: pid {children[1].pid}"):
        channel.producer(2)
    for child in children:
        child.kill()
    assert [each and each.alive for each in channel.stats().attached_producers] == [False, None, False]
    with channel.producer(2) as again, channel.producer() as first:
        assert (again.number, first.number) == (2, 0)
    with channel.consumer() as consumer:
        for number in (0, 2):
            with consumer.pop(0) as item:
                assert (item.producer, bytes(item)) == (number, b"%d" % number)
    require_exact(channel)


# -- fork and descriptors ---------------------------------------------------------------------------------


def fork_with_lanes() -> None:
    """Fork: the child has no role, and takes the other producer's."""
    import os

    from holdfast import Channel, HoldfastError

    channel = Channel.open("c")
    producer = channel.producer(1)
    producer.push(b"parent", priority=1)
    loan = producer.loan(4, priority=1)
    loan.data[:] = b"loan"
    pid = os.fork()
    if pid == 0:
        refused = 0
        for data in (b"child", loan):
            try:
                producer.push(data)
            except HoldfastError as error:
                refused += "before fork()" in str(error)
        with channel.producer() as other:
            other.push(b"child", priority=1)
            os._exit(10 * refused + other.number)
    tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    producer.push(loan)


def test_fork(channel: Channel, start: Start) -> None:
    child = start(fork_with_lanes)
    assert child.hear() == 20, "two calls are refused, and the child is producer 0"
    child.wait()
    with channel.consumer() as consumer:
        found = []
        while not consumer.empty:
            with consumer.pop(0) as item:
                found.append((item.producer, item.priority, bytes(item)))
        assert found == [(0, 1, b"child"), (1, 1, b"parent"), (1, 1, b"loan")]
    require_exact(channel)


def closed_under() -> None:
    """Close the descriptors, as a daemoniser does; a push notices it."""
    import os

    from holdfast import Channel, HoldfastError

    producer = Channel.open("c").producer(2)
    producer.push(b"before", priority=1)
    os.closerange(3, 64)
    tell("closed")
    hear()
    for n in range(5000):  # a look at the kernel now and then notices it
        try:
            producer.push(b"mine", priority=n % 2)
        except HoldfastError as error:
            tell("closed the descriptor" in str(error))
            break


def test_descriptors_closed_under_a_producer(channel: Channel, start: Start) -> None:
    with channel.producer(0) as other:
        child = start(closed_under)
        assert child.hear() == "closed"
        other.push(b"undisturbed", 0)
        child.tell("go")
        assert child.hear() is True
        child.wait()
        other.push(b"undisturbed", 0)
    require_exact(channel)
