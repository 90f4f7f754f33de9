"""A channel between processes that wait, stop, fork, die, or lose their descriptors."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Channel, Misuse
from tests.kit.processes import Start, hear, tell, until
from tests.kit.slices import pick

KILLED = -signal.SIGKILL


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=4, slot_size=1 << 12) as made:
        yield made


def consume(hold: int) -> None:
    """Pop for ever; keep the last items."""
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    tell("ready")
    kept = []
    last = -1
    while True:
        item = consumer.pop()
        number, _, rest = bytes(item).partition(b":")
        assert int(number) > last, "in order, and none twice"
        assert rest == b"x" * len(rest), "not torn"
        last = int(number)
        kept.append(item)
        while len(kept) > hold:
            kept.pop(0).release()


def produce(first: int) -> None:
    """Push for ever, in each way."""
    from holdfast import Channel

    producer = Channel.open("c").producer()
    tell("ready")
    n = first
    while True:
        producer.push(b"%d:" % n + b"x" * (n % 3000))
        producer.push_batch([b"%d:xx" % (n + 1), b"%d:" % (n + 2)])
        with producer.loan(40) as buffer:
            text = b"%d:" % (n + 3)
            buffer[:] = text.ljust(40, b"x")
        producer.cancel(producer.push(b"%d:" % (n + 4)).handle)
        n += 5


def require_exact(channel: Channel) -> None:
    """Check that every buffer comes back after all processes are dead."""
    with channel.producer() as producer, channel.consumer() as consumer:
        while not consumer.empty:
            consumer.pop(0).release()
        assert channel.check() == []
        loans = [producer.loan() for _ in range(channel.stats().loans)]
        del loans
        stats = channel.stats()
        assert (stats.free, stats.held, stats.ready) == (stats.buffers, 0, 0)


def more_than(channel: Channel, popped: int) -> bool:
    return channel.stats().popped > popped


def test_a_storm_of_kills_leaks_no_buffer(channel: Channel, start: Start) -> None:
    """Either side is killed anywhere, and restarted; each role is free at once."""
    choose = random.Random(5)
    producer, consumer = start(produce, 0), start(consume, 2)
    for child in (producer, consumer):
        assert child.hear() == "ready"
    first = 0
    for _ in range(pick(12, 300)):
        popped = channel.stats().popped
        until(functools.partial(more_than, channel, popped))
        os.sched_yield()
        if choose.random() < 0.5:
            producer.kill()
            first += 10**9
            producer = start(produce, first)
            assert producer.hear() == "ready"
        else:
            consumer.kill()
            consumer = start(consume, choose.randrange(4))
            assert consumer.hear() == "ready"
    producer.kill()
    consumer.kill()
    require_exact(channel)


def test_a_stopped_consumer_never_blocks_a_push(channel: Channel, start: Start) -> None:
    child = start(consume, 3)
    assert child.hear() == "ready"
    producer = channel.producer()
    for n in range(10):
        producer.push(b"%d:" % n)
    until(lambda: channel.stats().held == 3)
    os.kill(child.pid, signal.SIGSTOP)
    child.wait_stopped()
    for n in range(10, 2000):
        producer.push(b"%d:" % n, timeout=0)
    with pytest.raises(Misuse, match=f"has a consumer already: pid {child.pid}"):
        channel.consumer()  # slow is not dead
    assert channel.check() == []
    child.go_on()
    until(lambda: channel.stats().ready == 0)
    child.kill()
    producer.close()
    require_exact(channel)


def pop_one(timeout: float) -> None:
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    consumer.spin = 0
    tell("ready")
    with consumer.pop(timeout) as item:
        tell(bytes(item))


def test_a_push_wakes_a_sleeping_consumer(channel: Channel, start: Start) -> None:
    child = start(pop_one, 20.0)
    assert child.hear() == "ready"
    channel.producer().push(b"wake up")
    assert child.hear() == b"wake up"
    child.wait()


def hold_one() -> None:
    from holdfast import Channel

    consumer = Channel.open("c").consumer()
    item = consumer.pop(20)
    tell(bytes(item))
    hear()


def test_a_killed_holder_gives_its_buffer_and_role_back(channel: Channel, start: Start) -> None:
    producer = channel.producer()
    for n in range(5):
        child = start(hold_one)
        producer.push(b"%d" % n)
        assert child.hear() == b"%d" % n
        assert channel.stats().held == 1
        child.kill()
    consumer = channel.consumer()
    producer.push(b"last")
    with consumer.pop(0) as item:
        assert bytes(item) == b"last", "what was popped is not delivered again"
    assert channel.stats().recovered == 5
    consumer.close()
    producer.close()
    require_exact(channel)


def fork_with_roles() -> None:
    """Fork: the child has no role, and its writes stay in it."""
    import os

    from holdfast import Channel, HoldfastError

    channel = Channel.open("c")
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(b"1")
    item = consumer.pop(0)
    loan = producer.loan(1)
    view, mine = item.data, loan.data
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in (lambda: producer.push(b"child"), lambda: consumer.pop(0), producer.loan):
            try:
                call()
            except HoldfastError as error:
                refused += "before fork()" in str(error)
        mine[0] = 7
        assert bytes(view) == b"1"
        item.release()
        loan.release()
        consumer.close()
        producer.close()
        try:
            channel.consumer()
        except HoldfastError as error:
            refused += "has a consumer already" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    assert mine[0] != 7
    assert bytes(view) == b"1"
    mine.release()
    producer.push(b"2")
    with consumer.pop(0) as second:
        tell(bytes(second))
    consumer.close()
    pid = os.fork()
    if pid == 0:
        with channel.consumer():
            found = channel.stats().consumer
            os._exit(found is not None and found.pid == os.getpid())
    tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def test_fork(channel: Channel, start: Start) -> None:
    child = start(fork_with_roles)
    assert (child.hear(), child.hear()) == (b"2", 1)
    child.wait()
    require_exact(channel)


def closed_under() -> None:
    """Close the descriptors, as a daemoniser does; other files get their numbers."""
    import os

    from holdfast import Channel, HoldfastError

    channel = Channel.open("c")
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(b"before")
    os.closerange(3, 64)
    strangers = [os.open("/dev/null", os.O_RDWR) for _ in range(30)]
    tell("closed")
    hear()
    told = []
    for _ in range(3000):  # a look at the kernel now and then notices it
        try:
            producer.push(b"mine")
        except HoldfastError as error:
            told.append(str(error))
            break
    try:
        consumer.pop(0.2)
        consumer.pop(0.2)
    except HoldfastError as error:
        told.append(str(error))
    assert len([os.fstat(each) for each in strangers]) == 30
    tell(sum("closed the descriptor" in each for each in told))


def test_descriptors_closed_under_a_process(channel: Channel, start: Start) -> None:
    child = start(closed_under)
    assert child.hear() == "closed"
    child.tell("go")
    assert child.hear() >= 1
    child.wait()
    require_exact(channel)


def write_into_data() -> None:
    """Write into the consumer's mapping of the data, which is read-only."""
    import ctypes

    from holdfast import Channel

    with Channel.open("c") as channel:
        item = channel.consumer().pop(0)
        lines = Path("/proc/self/maps").read_text().splitlines()
        found = [each for each in lines if "holdfast.channel.c" in each and each.split()[1] == "r--s"]
        assert found, lines
        ctypes.memset(int(found[-1].split("-")[0], 16), 1, 1)
        tell(bytes(item))


def test_a_consumer_cannot_write_into_the_data(channel: Channel, start: Start) -> None:
    channel.producer().push(b"x")
    start(write_into_data).wait(-signal.SIGSEGV)


def close_without_descriptors(role: str) -> None:
    """Close a role after other code closed the descriptors, when another process has the slot."""
    import os

    from holdfast import Channel

    taken = getattr(Channel.open("c"), role)()
    os.closerange(3, 64)
    tell("closed")
    hear()
    taken.close()


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_close_without_descriptors_leaves_the_successor(channel: Channel, start: Start, role: str) -> None:
    child = start(close_without_descriptors, role)
    assert child.hear() == "closed"
    with getattr(channel, role)():
        child.tell("go")
        child.wait()
        assert os.getpid() in [each.pid for each in channel.stats().participants]
        with pytest.raises(Misuse, match=f"has a {role} already"):
            getattr(channel, role)()


def stop_in_a_pop(point: str) -> None:
    """Stop at a point of a pop; then finish it."""
    from holdfast import Channel, _core

    consumer = Channel.open("c").consumer()
    _core.arm(point, "stop", 1)
    with consumer.pop(0) as item:
        tell(bytes(item))
    hear()


@pytest.mark.parametrize("point", ["pop_inspected", "pop_read", "pop_claimed"])
def test_a_stopped_pop_leaves_what_a_closed_producer_keeps(
    channel: Channel, start: Start, point: str
) -> None:
    producer = channel.producer()
    producer.push(b"seen")
    child = start(stop_in_a_pop, point)
    child.wait_stopped()
    producer.push_batch([b"a", b"b", b"c"])
    displaced = producer.push(b"d").displaced
    assert displaced is not None
    view = displaced.data
    producer.close()
    child.go_on()
    assert child.hear() == b"a"
    with channel.producer() as heir:
        for _ in range(20):
            heir.push(b"other")
        assert bytes(view) == b"seen"
    view.release()
    child.tell("go")
    child.wait()
    require_exact(channel)
