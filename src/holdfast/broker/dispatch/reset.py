"""Resets and advances: durable first, then memory, then the callers that wait.

```
 reset:  start ─► submit Reset(token, expected) ─► stable ─► follow ─► endpoints: cleared ─► call returns
           │ window open: no reads                 │ refused  position, tables and revision in one step,
           │                                       ▼          and the window ends
           │                                     end, no change
           └─ guard: after its time ─► submit Fence(token) ─► stable ─► follow, or end without a change
```

`follow` (`_follow_reset`) is the only place where a reset changes memory. It serves the notice of a durable
subscription, the outcome of a volatile one, a fence, and a reset that another member submitted.

One window at a time: a second reset waits for the first (**I56**). The window does not belong to the caller.
A task of the dispatcher carries the reset out, and the guard ends the window if that task is gone (**I57**).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast._core import Dispatch
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.dispatch.revision import Revision, RevisionController, Window
from holdfast.broker.dispatch.types import Cursor, DispatchOptions, Submit
from holdfast.broker.events import Advance, Fence, Reset
from holdfast.broker.ranges import without
from holdfast.errors import Closed, CursorModifying, HoldfastError, Timeout
from holdfast.system import Clock, Randomness


class Resetting:
    """Changes the position of a cursor.

    It calls `cleared` after every reset, and `moved` after every change.
    """

    def __init__(
        self,
        cursor: Cursor,
        table: Dispatch,
        submit: Submit,
        clock: Clock,
        random: Randomness,
        options: DispatchOptions,
        cleared: Callable[[], None],
        moved: Callable[[], None],
    ) -> None:
        self._cursor = cursor
        self._table = table
        self._submit = submit
        self._random = random
        self._options = options
        self._cleared = cleared
        self._moved = moved
        self.revision = RevisionController(cursor.reset_number, cursor.owner_epoch, clock, self._guard)
        self.revisions = 0
        self.rewinds = 0
        """Number of revisions without an event."""
        self._acking: Acking
        self._reading: Reading
        self._forwarded = 0
        """Position up to which an advance was followed."""
        self._fencing: Window | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stopped: Exception | None = None

    def serve(self, acking: Acking, reading: Reading) -> None:
        """Set the parts that change together with the position."""
        self._acking = acking
        self._reading = reading
        self._expect()

    def _expect(self) -> None:
        """Mark entries that may have been delivered before the last reset as undelivered (**I58**)."""
        cursor = self._cursor
        first = max(cursor.target, cursor.acks.acked_to)
        for each in without([(first, cursor.reach)], cursor.delivered) if first < cursor.reach else []:
            self._table.expect(*each)

    # -- calls -----------------------------------------------------------------------------------------

    async def reset(self, target: int, timeout_s: float) -> Revision:
        """Move the cursor to `target`, and forget deliveries and acknowledgements above it.

        Raises:
            CursorModifying: other resets came first, or took until the timeout. Nothing was changed.
            Timeout: the reset is under way, and may still happen; `reset_number` tells.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        token = self._random.token(16)
        while True:
            self._require_open()
            window = self.revision.start(token, self._options.reset_timeout_s)
            if window is not None:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await self.revision.closed()
            except TimeoutError:
                raise CursorModifying(
                    f"other resets of subscription {self._cursor.name} were under way for {timeout_s} s; "
                    "this call changed nothing: try again"
                ) from None
        self._acking.flush()  # earlier acknowledgements precede the reset in the order
        self._reading.leave_behind()
        task = loop.create_task(self._carry_out(window, target), name=f"reset of {self._cursor.name}")
        await self._follow(task, max(0.0, deadline - loop.time()), f"the reset to {target}")
        return task.result()

    async def advance(self, to: int | None, skip: int | None, timeout_s: float | None) -> int:
        """Acknowledge everything below `to`, or the next `skip` entries of the backlog.

        Returns the new position.

        Raises:
            CursorModifying: a reset came first. Nothing was changed.
            Timeout: the advance is under way, and may still happen.
        """
        self._require_open()
        self._acking.flush()
        number = self.revision.reset_number
        event = Advance(self._cursor.id, number, to=-1 if to is None else to, skip=skip or 0)
        task = asyncio.get_running_loop().create_task(
            self._carry_forward(event), name=f"advance of {self._cursor.name}"
        )
        await self._follow(task, timeout_s, f"the advance to {to if skip is None else f'skip {skip}'}")
        return task.result()

    def moved(self, reset_number: int, acked_to: int) -> None:
        """Follow an event that has moved the cursor, of any member. Idempotent."""
        if reset_number > self.revision.reset_number:
            self._follow_reset(reset_number, acked_to)
        elif reset_number == self.revision.reset_number:
            self._forward(acked_to)

    def owned(self) -> None:
        """Follow a raised owner epoch: reads under way are dropped."""
        if self._cursor.owner_epoch != self.revision.owner_epoch:
            self.revision.revise(self._reading.leave_behind, owner_epoch=self._cursor.owner_epoch)
            self._moved()

    def rewind(self, editor: Callable[[], None]) -> None:
        """Change the volatile position and tables, without an event."""

        def edit() -> None:
            self._reading.leave_behind()
            editor()

        self.revisions += 1
        self.rewinds += 1
        self.revision.revise(edit)

    def take(self, editor: Callable[[], None]) -> None:
        """Change the volatile position and tables because dispatch begins or ends here."""

        def edit() -> None:
            self._reading.leave_behind()
            editor()

        self.revision.revise(edit, owner_epoch=self._cursor.owner_epoch)

    def stop(self, reason: Exception) -> None:
        """Cancel resets and advances; their callers get the reason."""
        self._stopped = reason
        for task in self._tasks:
            task.cancel()
        self.revision.abandon()

    # -- carrying out ----------------------------------------------------------------------------------

    async def _carry_out(self, window: Window, target: int) -> Revision:
        try:
            revised = await self._submit(Reset(self._cursor.id, window.token, window.expected, target))
        except HoldfastError:
            self._close(window, self._cursor.reset_number, self._cursor.acks.acked_to)
            raise
        self._close(window, revised.reset_number, revised.target)
        return self.revision.number

    async def _carry_forward(self, event: Advance) -> int:
        revised = await self._submit(event)
        if revised.reset_number == self.revision.reset_number:
            self._forward(revised.target)
        return int(revised.target)

    async def _follow(self, task: asyncio.Task[Any], timeout_s: float | None, what: str) -> None:
        """Wait for the task. It continues if the caller is cancelled."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            raise Timeout(
                f"{what} of subscription {self._cursor.name} has no outcome after {timeout_s} s; it may "
                "still happen: look at the reset number and the position"
            )
        if task.cancelled():
            self._require_open()
            raise Timeout(f"{what} of subscription {self._cursor.name} was cancelled; it may still happen")

    def _guard(self, window: Window) -> None:
        """Submit a fence for a window that has been open for too long."""
        if self._fencing is window:
            return
        self._fencing = window
        try:
            future = self._submit(Fence(self._cursor.id, window.token, window.expected))
        except HoldfastError:
            self._fencing = None  # the guard tries again
            return
        future.add_done_callback(lambda done: self._fenced(window, done))

    def _fenced(self, window: Window, done: asyncio.Future[Any]) -> None:
        self._fencing = None
        if done.cancelled() or done.exception() is not None:
            return  # the guard tries again
        self._close(window, done.result().reset_number, done.result().target)

    def _close(self, window: Window, reset_number: int, target: int) -> None:
        """End a window by the state: the reset has happened, or it never will."""
        if self.revision.window is not window:
            return  # the reset was followed before, or the guard came first
        if reset_number > self.revision.reset_number:
            self._follow_reset(reset_number, target)
        else:
            self.revision.end(window, lambda: None, **self._numbers(reset_number))
            self._moved()

    def _follow_reset(self, reset_number: int, target: int) -> None:
        """Change tables, position and revision in one step, and end the window that is open.

        A window that expected a lower number ends, too: its own reset can only be refused now.
        """
        window, numbers = self.revision.window, self._numbers(reset_number)
        if window is None:
            self.revision.revise(lambda: self._put_at(target), **numbers)
        else:
            self.revision.end(window, lambda: self._put_at(target), **numbers)
        self.revisions += 1
        self._cleared()
        self._moved()

    def _numbers(self, reset_number: int) -> dict[str, int]:
        return {"reset_number": reset_number, "owner_epoch": self._cursor.owner_epoch}

    def _put_at(self, target: int) -> None:
        """Set position and tables as if nothing from `target` on had been delivered."""
        self._reading.leave_behind()
        self._table.reset(target)
        self._expect()
        self._acking.forget()
        self._acking.elsewhere = ()
        self._reading.put(target)
        self._forwarded = target

    def _forward(self, acked_to: int) -> None:
        """Follow an advance: reads in flight are dropped, acknowledgements stay valid."""
        if acked_to <= self._forwarded:
            return
        self._forwarded = acked_to

        def edit() -> None:
            self._table.release(0, acked_to)
            self._reading.position = max(self._reading.position, acked_to)

        self.rewind(edit)
        self._moved()

    def _require_open(self) -> None:
        if self._stopped is not None:
            raise Closed(f"the dispatcher of subscription {self._cursor.name} is closed: {self._stopped}")
