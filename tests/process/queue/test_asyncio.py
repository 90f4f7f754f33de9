"""The queue under event loops, with other processes and forked ones."""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import Queue, Timeout
from tests.kit.processes import PATIENCE_S, Start, hear, tell, until
from tests.kit.queue.loops import run
from tests.kit.queue.queues import drain
from tests.kit.queue.segments import waiting


def feed(name: str, count: int) -> None:
    with Queue.open(name) as q:
        hear()
        for i in range(count):
            q.put(b"%d" % i)


def test_a_task_waits_for_another_process(q: Queue, start: Start) -> None:
    child = start(feed, "q", 200)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def main() -> None:
        ticker = asyncio.create_task(tick())
        task = asyncio.create_task(q.aget())
        while ticks < 10:  # the loop goes on while it waits
            await asyncio.sleep(0.001)
        assert not task.done()
        child.tell("go")
        with await task as message:
            assert bytes(message) == b"0"
        for i in range(1, 200):
            with await q.aget(timeout=10) as message:
                assert bytes(message) == b"%d" % i
        ticker.cancel()

    run(main())
    child.wait()


def hold(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=10)
    tell(len(message))
    hear()


def test_who_is_in_the_way_is_named_and_its_death_noticed(q: Queue, start: Start) -> None:
    q.put(b"x" * 992)
    child = start(hold, "q")
    child.hear()

    async def main() -> None:
        with pytest.raises(Timeout, match=f"pid {child.pid}") as late:
            await q.aget(timeout=0.05)
        assert late.value.pid == child.pid
        task = asyncio.create_task(q.aget())
        while not waiting("q", "data"):
            await asyncio.sleep(0.001)
        child.kill()
        with await asyncio.wait_for(task, PATIENCE_S) as message:
            assert message.redelivered == 1

    run(main())


def fork_with_a_waiter(name: str) -> None:
    import asyncio

    async def once(q: Queue) -> bytes:
        with await q.aget(timeout=10) as message:
            return bytes(message)

    q = Queue.open(name)
    tell(asyncio.run(once(q)))  # the waiter's thread runs by now
    pid = os.fork()
    if pid == 0:
        fresh = Queue.open(name)
        tell("child waits")
        tell(asyncio.run(once(fresh)))
        os._exit(0)
    os.waitpid(pid, 0)
    tell("parent waits")
    tell(asyncio.run(once(q)))


def test_fork_gives_the_child_a_waiter_of_its_own(q: Queue, start: Start) -> None:
    child = start(fork_with_a_waiter, "q")
    until(lambda: waiting("q", "data"))
    q.put(b"1")
    assert child.hear() == b"1"
    for who in ("child waits", "parent waits"):
        assert child.hear() == who
        until(lambda: waiting("q", "data"))
        q.put(who.encode())
        assert child.hear() == who.encode()
    child.wait()


# -- a file descriptor for other loops --------------------------------------------------------------------


def test_select(q: Queue, start: Start) -> None:
    child = start(feed, "q", 100)
    got: list[bytes] = []
    child.tell("go")
    with selectors.DefaultSelector() as selector:
        selector.register(q, selectors.EVENT_READ)
        limit = time.monotonic() + 10
        while len(got) < 100 and time.monotonic() < limit:
            q.arm()
            got += drain(q)
            if len(got) < 100:
                selector.select(5)
    assert got == [b"%d" % i for i in range(100)]
    child.wait()


def arm_and_close() -> None:
    def descriptors() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    before = descriptors()
    for _ in range(3):
        q = Queue.create("q", capacity=4096)
        q.arm()
        q.detach()
        try:
            q.arm()
        except holdfast.Misuse as error:
            tell(str(error))
        Queue.unlink("q")
        q = Queue.create("q", capacity=4096)
        q.fileno()
        del q
        Queue.unlink("q")
    until(lambda: descriptors() == before)
    tell("closed")


def test_descriptors_are_closed(start: Start) -> None:
    """In a process of its own: others' descriptors come and go."""
    child = start(arm_and_close)
    for _ in range(3):
        assert "detached" in child.hear()
    assert child.hear() == "closed"


def use_and_exit(name: str, how: str) -> None:
    """The interpreter ends while the waiter's thread sleeps, or has something to tell."""
    import asyncio

    q = Queue.open(name)
    q.arm()
    if how == "task":

        async def main() -> None:
            task = asyncio.create_task(q.aget())
            for _ in range(3):  # it has begun to wait
                await asyncio.sleep(0)
            task.cancel()

        asyncio.run(main())
    tell("end")


@pytest.mark.parametrize("how", ["fd", "task"])
def test_the_interpreter_ends_with_a_waiter(q: Queue, start: Start, how: str) -> None:
    child = start(use_and_exit, "q", how)
    child.hear()
    child.wait()
    assert "Error" not in child.errors()
