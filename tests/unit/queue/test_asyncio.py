"""The queue under asyncio and other event loops, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import select
import threading
from collections import Counter
from collections.abc import Awaitable

import pytest

from holdfast import Closed, Empty, Full, Misuse, Queue, Timeout
from tests.kit.queue.loops import run
from tests.kit.queue.queues import drain, fill
from tests.kit.queue.segments import waiting
from tests.kit.waiting import eventually, waits_out


def test_what_is_there_is_had_at_once(q: Queue) -> None:
    async def main() -> None:
        await q.aput(b"a")
        await q.aput_many([b"b", b"c"])
        with await q.aget() as message:
            assert (bytes(message), message.redelivered) == (b"a", 0)
        with await q.aget_many(5) as batch:
            assert batch.tobytes() == [b"b", b"c"]
        for timeout in (0, 0.0):
            with pytest.raises(Empty):
                await q.aget(timeout=timeout)

    run(main())
    assert q.stats().settled == 3


@pytest.mark.parametrize("tasks", [20, 300], ids=["few", "more than one futex_waitv can watch"])
def test_many_tasks_share_the_messages(q: Queue, tasks: int) -> None:
    seen: Counter[bytes] = Counter()

    async def consume() -> None:
        with contextlib.suppress(Closed):
            while True:
                with await q.aget() as message:
                    seen[bytes(message)] += 1
                    await asyncio.sleep(0)

    async def main() -> None:
        consumers = [asyncio.create_task(consume()) for _ in range(tasks)]
        await asyncio.sleep(0)
        with Queue.open("q") as other:
            for i in range(500):
                await other.aput(b"%d" % i)
            other.close()
            await asyncio.gather(*consumers)

    run(main())
    assert seen == {b"%d" % i: 1 for i in range(500)}


def test_a_put_waits_for_room(q: Queue) -> None:
    count = fill(q, b"x" * 992)

    async def main() -> None:
        puts = [asyncio.create_task(q.aput(b"y" * 992)) for _ in range(5)]
        await eventually(lambda: waiting("q", "space"))
        assert not any(task.done() for task in puts)
        for _ in range(count):
            q.get_bytes(timeout=0)
        await asyncio.gather(*puts)

    run(main())
    assert drain(q) == [b"y" * 992] * 5


def test_put_many_goes_in_extents_and_tells_how_far_it_came() -> None:
    async def main() -> None:
        with Queue.create("small", capacity=1 << 12) as q:
            messages = [b"%d" % i for i in range(100)]
            with pytest.raises(Timeout) as late:
                await q.aput_many(messages, timeout=0.05)
            assert late.value.done == 32
            assert q.stats().ready == 32
            task = asyncio.create_task(q.aput_many(messages[32:]))
            got: list[bytes] = []
            while len(got) < 100:
                with await q.aget_many(7) as batch:
                    got += batch.tobytes()
            await task
            assert got == messages
            with pytest.raises(Misuse):
                await q.aput(bytes(q.message_size_max + 1))

    run(main())


# -- timeouts, cancellation -------------------------------------------------------------------------------


def test_timeouts(q: Queue) -> None:
    async def main() -> None:
        for call in (q.aget, lambda timeout: q.aget_many(3, timeout)):
            with waits_out(0.1), pytest.raises(Timeout, match=r"no message .*waited 0\.1 s"):
                await call(timeout=0.1)
        fill(q, b"x" * 992)
        with pytest.raises(Full):
            await q.aput(b"x" * 992, timeout=0)
        with pytest.raises(Timeout, match="no room"):
            await q.aput(b"x" * 992, timeout=0.05)
        for timeout in (-1, float("nan")):
            with pytest.raises(Misuse, match="timeout"):
                await q.aget(timeout=timeout)

    run(main())


def test_cancellation_loses_nothing(q: Queue) -> None:
    """Tasks are cancelled at every moment around a put; no message is lost.

    Each message is with a task, or still in the queue.
    """
    had: list[bytes] = []

    async def consume() -> None:
        message = await q.aget()
        with message:
            had.append(bytes(message))

    async def main() -> None:
        for i in range(300):
            task = asyncio.create_task(consume())
            for _ in range(i % 4):
                await asyncio.sleep(0)
            q.put(b"%d" % i)
            for _ in range(i // 4 % 6):
                await asyncio.sleep(0)
            if i % 50 == 49:
                await eventually(task.done)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main())
    stats = q.stats()
    assert stats.taken == 0
    assert stats.delivered == stats.settled == len(had)
    assert sorted(had + drain(q)) == sorted(b"%d" % i for i in range(300))
    assert 0 < len(had) < 300, "both outcomes occurred"


def test_wait_for_and_timeout_cancel_cleanly(q: Queue) -> None:
    async def main() -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(q.aget(), 0.002)
        async with asyncio.timeout(5):
            q.put(b"x")
            with await q.aget() as message:
                assert bytes(message) == b"x"
        fill(q, b"y" * 992)
        before = q.stats().put
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(q.aput(b"never" * 190), 0.02)
        assert q.stats().put == before
        assert b"never" * 190 not in drain(q)

    run(main())


# -- iteration, close -------------------------------------------------------------------------------------


def test_async_iteration(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c", b"d"])

    async def main() -> None:
        async for message in q:
            if bytes(message) == b"b":
                break
        del message
        for _ in range(3):
            await asyncio.sleep(0)  # the loop closes the iterator that was left
        assert (q.stats().settled, q.stats().returned) == (1, 1)

        async def close() -> None:
            await eventually(lambda: waiting("q", "data"))
            q.close()

        closing = asyncio.create_task(close())
        assert [bytes(message) async for message in q] == [b"b", b"c", b"d"]
        await closing
        assert q.stats().settled == 4

    run(main())


def test_close_wakes_tasks(q: Queue) -> None:
    async def expect_closed(call: Awaitable[object]) -> None:
        with pytest.raises(Closed):
            await call

    async def main() -> None:
        waiting_tasks = [asyncio.create_task(expect_closed(q.aget())) for _ in range(5)]
        await eventually(lambda: waiting("q", "data"))
        q.close()
        await asyncio.gather(*waiting_tasks)
        await expect_closed(q.aput(b"x"))

    run(main())


# -- loops that come and go -------------------------------------------------------------------------------


def test_a_loop_that_is_closed_with_tasks_waiting_harms_nobody(q: Queue) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(q.aget())
    loop.run_until_complete(eventually(lambda: waiting("q", "data")))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    q.put(b"x")  # the bell of a closed loop

    async def main() -> None:
        with await q.aget(timeout=5) as message:
            assert bytes(message) == b"x"

    run(main())


def test_a_loop_closed_in_the_middle_of_a_wait(q: Queue) -> None:
    """A loop ends without cancellation: the waiter finds it closed, and serves the next loop."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(q.aget())
    loop.run_until_complete(eventually(lambda: waiting("q", "data")))
    loop.close()
    q.put(b"x")

    async def main() -> None:
        with await q.aget(timeout=5) as message:
            assert bytes(message) == b"x"
        with pytest.raises(Timeout):
            await q.aget(timeout=0.12)  # the waiter has found the loop closed by now

    run(main())
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio would complain of our rudeness
    with contextlib.suppress(RuntimeError):
        task.get_coro().close()


def test_loops_in_several_threads(q: Queue) -> None:
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    async def consume() -> None:
        async for message in q:
            with lock:
                seen[bytes(message)] += 1

    threads = [threading.Thread(target=lambda: run(consume())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(200):
        q.put(b"%d" % i)
    q.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert seen == {b"%d" % i: 1 for i in range(200)}


def test_the_descriptor_tells_of_a_put_and_arm_resets_it(q: Queue) -> None:
    assert q.fileno() == q.fileno()
    q.arm()
    q.put(b"x")
    assert select.select([q], [], [], 20.0)[0] == [q]
    q.arm()
    assert select.select([q], [], [], 0)[0] == [], "quiet again"


def test_add_reader(q: Queue) -> None:
    got: list[bytes] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def look() -> None:
            q.arm()
            got.extend(drain(q))
            if len(got) == 50 and not done.done():
                done.set_result(None)

        loop.add_reader(q.fileno(), look)
        look()
        for i in range(50):
            q.put(b"%d" % i)
            await asyncio.sleep(0)
        await done
        loop.remove_reader(q.fileno())

    run(main())
    assert got == [b"%d" % i for i in range(50)]


def test_calls_from_a_program_without_a_loop(q: Queue) -> None:
    coroutine = q.aget()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), float("-inf"), -(10**400)])
def test_a_timeout_that_is_none_is_named(q: Queue, timeout: float) -> None:
    """The same with and without asyncio."""

    async def wait(timeout: object) -> None:
        await q.aget(timeout)  # type: ignore[arg-type]

    async def room(timeout: object) -> None:
        await q.aput(b"x", timeout)  # type: ignore[arg-type]

    async def at_once(timeout: object) -> None:
        q.get(timeout)  # type: ignore[arg-type]

    for call in (wait, room, at_once):
        with pytest.raises(Misuse, match="timeout must be None or at least 0 seconds, not "):
            asyncio.run(call(timeout))
        with pytest.raises(TypeError, match="timeout must be None or a number of seconds, not 'soon'"):
            asyncio.run(call("soon"))
    assert q.stats().put == 0
