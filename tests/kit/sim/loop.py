"""An event loop in virtual time, in which a seed decides the order of callbacks.

Each simulated node is a `Life`. Every callback belongs to the life in whose context it was scheduled, or to
the world (network, disks, faults), which is None. Within one life callbacks keep asyncio's order; among lives
the seed decides. A life that was ended runs no further instruction, not even a `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from holdfast.errors import Misuse
from tests.kit.sim.randomness import SeededRandomness

T = TypeVar("T")

STEP_NS = 1_000
"""Virtual time of one callback: a program that spins cannot stop the clock."""


class Life:
    """One run of a node, from its boot to its crash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused_until_ns = 0


CURRENT: ContextVar[Life | None] = ContextVar("holdfast_sim_life", default=None)


class _Handle(asyncio.TimerHandle):
    """A callback and its owner."""

    def __init__(
        self, when: float, callback: Callable[..., Any], args: Any, loop: SimLoop, context: Context | None
    ) -> None:
        context = copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        self.life = context.get(CURRENT)


class SimLoop(asyncio.AbstractEventLoop):
    """Runs asyncio code in virtual time, in an order that depends on the seed alone.

    Example:
        >>> loop = SimLoop(SeededRandomness(1))
        >>> async def long() -> float:
        ...     await asyncio.sleep(3600)
        ...     return round(asyncio.get_running_loop().time())
        >>> loop.run_until_complete(long())
        3600
        >>> loop.close()
    """

    def __init__(self, chance: SeededRandomness) -> None:
        self.now_ns = 0
        self.steps = 0
        self.failures: list[BaseException] = []
        self._chance = chance
        self._timers: list[tuple[int, int, _Handle]] = []
        self._scheduled = 0
        self._ready: dict[Life | None, deque[_Handle]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # also keeps tasks of ended lives alive
        self._tasks_made = 0
        self._closed = False
        self._stopping = False
        self._running = False

    # -- what asyncio asks for -------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(self.time(), callback, args, self, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._schedule(self.now_ns + max(0, round(delay * 1e9)), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._schedule(round(when * 1e9), callback, args, context)

    def _schedule(
        self, when_ns: int, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> _Handle:
        handle = _Handle(when_ns / 1e9, callback, args, self, context)
        self._scheduled += 1
        if not self._closed:
            heapq.heappush(self._timers, (when_ns, self._scheduled, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the loop skips it when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        self._tasks_made += 1
        task = asyncio.Task(coro, loop=self, name=name or f"task-{self._tasks_made}", context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> T:
        """Run the function in the loop, a step later: threads would not repeat."""
        await asyncio.sleep(0)
        return func(*args)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: debugging would use the real clock."""

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error, which the run raises: otherwise it would not be seen."""
        error = context.get("exception")
        self.failures.append(error if isinstance(error, BaseException) else RuntimeError(context["message"]))

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        self.run(lambda: task.done())
        if not task.done():
            raise Misuse("nothing is left to run, but the result is missing")
        return task.result()

    def run_forever(self) -> None:
        self._stopping = False
        self.run(lambda: self._stopping)

    def stop(self) -> None:
        self._stopping = True

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: asynchronous generators are not tracked."""

    # -- running ---------------------------------------------------------------------------------------

    def run(self, enough: Callable[[], bool], until_ns: int | None = None) -> None:
        """Step until `enough`, a time, or the last callback; raise errors of callbacks."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not enough() and self._step(until_ns):
                if self.failures:
                    raise self.failures.pop(0)
        finally:
            self._running = False
            asyncio._set_running_loop(before)

    def _step(self, until_ns: int | None) -> bool:
        self._wake_timers()
        owners = self._owners()
        while not owners:
            coming = [self._timers[0][0]] if self._timers else []
            coming += [life.paused_until_ns for life in self._ready if life is not None]
            if not coming:
                return False
            if until_ns is not None and min(coming) > until_ns:
                self.now_ns = max(self.now_ns, until_ns)
                return False
            self.now_ns = max(self.now_ns, min(coming))
            self._wake_timers()
            owners = self._owners()
        if until_ns is not None and self.now_ns >= until_ns:
            return False
        life = owners[self._chance.integer(len(owners))]
        queue = self._ready[life]
        handle = queue.popleft()
        if not queue:
            del self._ready[life]
        self.now_ns += STEP_NS
        if not handle.cancelled():
            self.steps += 1
            handle._run()
        return True

    def _owners(self) -> list[Life | None]:
        return [life for life in self._ready if life is None or life.paused_until_ns <= self.now_ns]

    def _wake_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_ns:
            self._make_ready(heapq.heappop(self._timers)[2])

    def _make_ready(self, handle: _Handle) -> None:
        life = handle.life
        if not (handle.cancelled() or self._closed or (life is not None and not life.alive)):
            self._ready.setdefault(life, deque()).append(handle)

    def end(self, life: Life) -> None:
        """End a life: it runs no further instruction."""
        life.alive = False
        self._ready.pop(life, None)

    def close(self) -> None:
        """Drop all tasks. They can reach neither disk nor network while they are closed."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in sorted(self._tasks, key=lambda task: task.get_name()):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with contextlib.suppress(BaseException):
                coroutine.close()
        self._tasks.clear()
