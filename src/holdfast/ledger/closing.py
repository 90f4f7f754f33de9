"""Close once, and completely, also when the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Closing:
    """Runs a close in its own task: it completes when its caller is cancelled.

    A loop that ends cancels all tasks, also a task that has not started and would never run. Then the
    caller, which is cancelled too, starts the close again and waits for it.

    Example:
        >>> async def main() -> None:
        ...     closing = Closing("close")
        ...     async def close() -> None:
        ...         print("closed")
        ...     await closing(close)
        ...     await closing(close)
        >>> asyncio.run(main())
        closed
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._ran = False

    @property
    def begun(self) -> bool:
        """Return whether a close was started."""
        return self._task is not None

    async def __call__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close, or wait for a close that runs already."""
        cancelled = False
        while True:
            task = self._task
            if task is None or (task.cancelled() and not self._ran):
                task = self._task = asyncio.get_running_loop().create_task(self._run(close), name=self._name)
            try:
                await asyncio.shield(task)
                break
            except asyncio.CancelledError:
                cancelled = True
                if self._ran or not task.cancelling():
                    break
        if cancelled:
            raise asyncio.CancelledError

    async def _run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._ran = True
        await close()
