"""A broker whose opening or closing is cancelled at each place where it waits: nothing of it is left.

What is counted is what the kernel has of this process: descriptors and threads. The collector of Python does
not run meanwhile: what waits for it stays open for an unknown time.
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

waits: while it waits. answered: when it has its answer, and does not know it yet. again: at this and every
later place. loop: its loop ends, as after a second Ctrl-C, and cancels all tasks.
"""


def new(path: Path) -> None:
    """The directory is not there."""


def closed(path: Path) -> None:
    """The directory has a topic, and was closed."""
    asyncio.run(_use(path))


def crashed(path: Path) -> None:
    """The directory was left by a process that has died: there is something to recover."""
    closed(path)
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_use(path, lambda: os._exit(0)))
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "it was to die after its message"


async def _use(path: Path, then: Callable[[], None] = lambda: None) -> None:
    async with Broker.open(path, **SMALL) as broker, broker.producer("t") as p:
        await p.send(b"x" * 100)
        then()


BEFORE = (new, closed, crashed)


def cancel_everywhere(
    directory: Path, before: Callable[[Path], None], ways: Iterable[str] = WAYS, all_ways: bool = False
) -> int:
    """Open and close a broker, cancelled at one place after another; return how many places there are.

    Args:
        before: makes the directory.
        ways: of `WAYS`; each place has the next one of them.
        all_ways: each place has all of them, and the directory is used after each.

    Raises:
        AssertionError: something was left; the text says where.
    """
    chosen = list(ways)
    before(directory / "made")
    asyncio.run(_live(directory / "first"))  # what a process has for good: threads, a cache
    gc.collect()
    gc.freeze()  # so that a look at the rest is short
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
    """Return whether it came to the place."""
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
        with contextlib.suppress(FileNotFoundError):  # the one of this listing
            found.add((int(each.name), str(each.readlink())))
    return found


async def _live(path: Path) -> None:
    async with Broker.open(path, **SMALL) as broker:
        async with broker.producer("t") as p:
            await p.send(b"x" * 100)
        await broker.admin.examine("t", "earliest")


def _cancel(path: Path, place: int, way: str) -> bool:
    """Return whether it came to the place."""
    came: list[int] = []
    try:
        asyncio.run(_cancelled(path, place, way, came))
    except asyncio.CancelledError:
        assert came, "it was cancelled by something else"
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
    while others := asyncio.all_tasks() - {main}:  # a close goes on without its caller
        await asyncio.wait(others)


@types.coroutine
def _watch(
    work: Coroutine[Any, Any, None], at_place: Callable[[int, asyncio.Future[Any] | None], None]
) -> Generator[Any, Any, None]:
    """Run it, and tell of each place where it waits, just before it does."""
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
