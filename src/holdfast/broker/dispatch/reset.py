"""Resets and advances: durable first, then memory, then the callers that wait.

```
 reset:  start ─► submit Reset(token, expected) ─► stable ─► follow ─► endpoints: cleared ─► caller told
           │ window open: no reads                 │ refused  position, tables and revision in one step,
           │                                       ▼          and the window ends
           │                                     end, no change
           └─ guard: after its time ─► submit Fence(token) ─► stable ─► follow, or end without a change
```

`follow` (`_follow_reset`) is the only place where a reset changes memory. It serves the notice of a durable
subscription, the outcome of a volatile one, a fence, and a reset that another member submitted.

One window at a time: a second reset waits for the first (**I56**). The window does not belong to the caller:
a task of the dispatcher carries the reset out, and the guard ends the window if that task is gone (**I57**).
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
from holdfast.errors import Closed, CursorModifying, HoldfastError, Timeout
from holdfast.system import Clock, Randomness


class Resetting:
    """Changes the position of a cursor. `cleared` is called after every reset, `moved` after every change."""

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
        """Those of them that no event made."""
        self._acking: Acking
        self._reading: Reading
        self._forwarded = 0
        """Up to where an advance was followed."""
        self._fencing: Window | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stopped: Exception | None = None

    def serve(self, acking: Acking, reading: Reading) -> None:
        """What else changes with the position."""
        self._acking = acking
        self._reading = reading
        self._expect()

    def _expect(self) -> None:
        """What may have been delivered before the last reset, by whichever life or owner (**I58**)."""
        cursor = self._cursor
        self._table.expect(max(cursor.target, cursor.acks.acked_to), cursor.reach)

    # -- what callers ask for --------------------------------------------------------------------------

    async def reset(self, target: int, timeout_s: float) -> Revision:
        """Go on from `target`, whatever was delivered or acknowledged.

        Raises:
            CursorModifying: others were resetting for so long, or came first; this call changed nothing.
            Timeout: it is under way, and may still happen or not; `reset_number` tells which.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        token = self._random.token(16)
        while True:
            self._require_open()
            window = self.revision.start(token, self._options.guard_s)
            if window is not None:
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await self.revision.closed()
            except TimeoutError:
                raise CursorModifying(
                    f"subscription {self._cursor.name} was being reset by others for {timeout_s} s; this "
                    "call changed nothing: try again"
                ) from None
        self._acking.flush()  # what was acknowledged before comes before it
        self._reading.leave_behind()
        task = loop.create_task(self._carry_out(window, target), name=f"reset of {self._cursor.name}")
        await self._follow(task, max(0.0, deadline - loop.time()), f"the reset to {target}")
        return task.result()

    async def advance(self, to: int | None, skip: int | None, timeout_s: float | None) -> int:
        """Acknowledge everything below `to`, or the next `skip` entries of the backlog; where it stands then.

        Raises:
            CursorModifying: a reset came first; this call changed nothing.
            Timeout: it is under way, and may still happen or not.
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
        """Follow an event that has moved the cursor, whichever member submitted it. Idempotent."""
        if reset_number > self.revision.reset_number:
            self._follow_reset(reset_number, acked_to)
        elif reset_number == self.revision.reset_number:
            self._forward(acked_to)

    def owned(self) -> None:
        """The owner epoch is another: what was being read before is dropped."""
        if self._cursor.owner_epoch != self.revision.owner_epoch:
            self.revision.revise(self._reading.leave_behind, owner_epoch=self._cursor.owner_epoch)
            self._moved()

    def rewind(self, editor: Callable[[], None]) -> None:
        """Change the position and the tables without an event: what is volatile needs none."""

        def edit() -> None:
            self._reading.leave_behind()
            editor()

        self.revisions += 1
        self.rewinds += 1
        self.revision.revise(edit)

    def stop(self, reason: Exception) -> None:
        """Whoever waits is told."""
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
        """Wait for the task; it goes on if the caller does not."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            raise Timeout(
                f"{what} of subscription {self._cursor.name} had no answer in {timeout_s} s; it may happen "
                "or not: the reset number and the position will tell"
            )
        if task.cancelled():
            self._require_open()
            raise Timeout(f"{what} of subscription {self._cursor.name} was abandoned; it may happen or not")

    def _guard(self, window: Window) -> None:
        """The window has been open for too long: let the order of events decide what became of it."""
        if self._fencing is window:
            return
        self._fencing = window
        try:
            future = self._submit(Fence(self._cursor.id, window.token, window.expected))
        except HoldfastError:
            self._fencing = None  # the guard comes again
            return
        future.add_done_callback(lambda done: self._fenced(window, done))

    def _fenced(self, window: Window, done: asyncio.Future[Any]) -> None:
        self._fencing = None
        if done.cancelled() or done.exception() is not None:
            return  # the guard comes again
        self._close(window, done.result().reset_number, done.result().target)

    def _close(self, window: Window, reset_number: int, target: int) -> None:
        """End a window by what the state says: the reset happened, or it never will."""
        if self.revision.window is not window:
            return  # it ended where the reset was followed, or the guard was quicker
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
        """As if nothing from there on had ever been delivered."""
        self._reading.leave_behind()
        self._table.reset(target)
        self._expect()
        self._acking.forget()
        self._reading.position = target
        self._forwarded = target

    def _forward(self, acked_to: int) -> None:
        """The rewind number alone rises: reads in flight are dropped, acknowledgements stay valid."""
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
            raise Closed(f"subscription {self._cursor.name} is not served any more: {self._stopped}")
