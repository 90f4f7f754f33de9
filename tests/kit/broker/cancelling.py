"""Cancel the opening or closing of a broker at each await; no resource may stay.

The check counts what the kernel holds for this process: descriptors and threads. Python's garbage collector
is off meanwhile, because a descriptor that waits for it stays open for an unknown time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.broker.broker import Broker

SMALL: dict[str, Any] = {"sync": "os", "journal_bytes": 1 << 16, "reserve_bytes": 1 << 14}
WAYS = ("waits", "answered", "again", "loop")
"""When the task is cancelled.

waits: while it waits. answered: when its future has a result that the task has not seen yet. again: at this
and every later await. loop: its loop ends, as after a second Ctrl-C, and cancels all tasks.
"""


def new(path: Path) -> None:
    """Leave the directory absent."""


def closed(path: Path) -> None:
    """Create a topic in the directory, and close the broker."""
    asyncio.run(_use(path))


def crashed(path: Path) -> None:
    """Let a process create a topic and die: the next open has to recover it."""
    closed(path)
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_use(path, lambda: os._exit(0)))
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "the process was to die after its message"


async def _use(path: Path, then: Callable[[], None] = lambda: None) -> None:
    async with Broker.open(path, **SMALL) as broker, broker.producer("t") as p:
        await p.send(b"x" * 100)
        then()


BEFORE = (new, closed, crashed)


def cancel_everywhere(
    directory: Path, before: Callable[[Path], None], ways: Iterable[str] = WAYS, all_ways: bool = False
) -> int:
    """Open and close a broker, cancelled at one await after another; return their number.

    Args:
        before: prepares the directory.
        ways: of `WAYS`; each await uses the next one of them.
        all_ways: try all of them at each await, and use the directory after each.

    Raises:
        AssertionError: a descriptor or a thread was left; the text says at which await.
    """
    chosen = list(ways)
    before(directory / "made")
    asyncio.run(_live(directory / "first"))  # creates what a process keeps: threads, a cache
    gc.collect()
    gc.freeze()  # shortens later collections
    gc.disable()
    try:
        for place in count():
            came = False
            for way in chosen if all_ways else [chosen[place % len(chosen)]]:
                path = directory / f"{place}-{way}"
                if (directory / "made").exists():
                    shutil.copytree(directory / "made", path)
                gc.collect()
                came |= leaves_nothing(path, place, way)
                if all_ways:
                    asyncio.run(_live(path))
                shutil.rmtree(path, ignore_errors=True)
            if not came:
                return place
    finally:
        gc.enable()
        gc.unfreeze()
    raise AssertionError("it never ended")


def leaves_nothing(path: Path, place: int, way: str) -> bool:
    """Check one await; return whether the task reached it."""
    told, threads = _descriptors(), threading.active_count()
    came = _cancel(path, place, way)
    left = sorted(_descriptors() - told)
    what = f"a broker that was cancelled at its place {place} ({way})" if came else "a broker that was closed"
    assert not left, f"{what} has left {left}"
    assert threading.active_count() <= threads, f"{what} has left a thread"
    return came


def _descriptors() -> set[tuple[int, str]]:
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            found.add((int(each.name), str(each.readlink())))
    return found


async def _live(path: Path) -> None:
    async with Broker.open(path, **SMALL) as broker:
        async with broker.producer("t") as p:
            await p.send(b"x" * 100)
        await broker.admin.examine("t", "earliest")


def _cancel(path: Path, place: int, way: str) -> bool:
    """Cancel the task at an await; return whether it reached it."""
    came: list[int] = []
    try:
        asyncio.run(_cancelled(path, place, way, came))
    except asyncio.CancelledError:
        assert came, "something else cancelled the task"
    return bool(came)


async def _cancelled(path: Path, place: int, way: str, came: list[int]) -> None:
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None

    def at_place(number: int, waits_for: asyncio.Future[Any] | None) -> None:
        if number != place and not (way == "again" and number > place):
            return
        came.append(number)
        if way == "loop":
            loop.call_soon(main.cancel)
        elif way == "answered" and waits_for is not None:
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            loop.call_soon(task.cancel)

    async def watched() -> None:
        await _watch(_live(path), at_place)

    task = asyncio.ensure_future(watched())
    if way == "loop":
        await task
        return
    await asyncio.gather(task, return_exceptions=True)
    while others := asyncio.all_tasks() - {main}:  # a close continues without its caller
        await asyncio.wait(others)


@types.coroutine
def _watch(
    work: Coroutine[Any, Any, None], at_place: Callable[[int, asyncio.Future[Any] | None], None]
) -> Generator[Any, Any, None]:
    """Run a coroutine, and report each await just before it waits."""
    steps, error = work.__await__(), None
    for number in count():
        try:
            waits_for = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            return
        at_place(number, waits_for)
        error = None
        try:
            yield waits_for
        except BaseException as thrown:
            error = thrown
