"""Redeliver messages by time: after a negative acknowledgement, or after the ack timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast._core import Batch, Dispatch
from holdfast.broker.dispatch.attached import Attached
from holdfast.system import Clock


class Redelivery:
    """One timer for all redeliveries of a subscription. It calls `came_back` when some are due."""

    def __init__(self, table: Dispatch, clock: Clock, came_back: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._came_back = came_back
        self._timed: dict[int, Attached] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at_ns = 0

    def watch(self, consumer: Attached) -> None:
        if consumer.ack_timeout_ns:
            self._timed[consumer.id] = consumer

    def unwatch(self, consumer: int) -> None:
        self._timed.pop(consumer, None)

    def given(self, consumer: Attached, batch: Batch) -> None:
        """Count a delivery to a consumer; its ack timeout begins."""
        consumer.handed_messages += batch.permits
        consumer.handed_bytes += batch.size
        if not consumer.ack_timeout_ns:
            return
        due_ns = self._clock.monotonic_ns() + consumer.ack_timeout_ns
        if self._timer is None or due_ns < self._at_ns:
            self.arm()

    def arm(self) -> None:
        """Set the timer to the next redelivery that is due."""
        due = [self._table.next_due] if self._table.next_due else []
        for each in self._timed.values():
            if oldest := self._table.oldest_ns(each.id):
                due.append(oldest + each.ack_timeout_ns)
        if not due:
            return
        at_ns = min(due)
        if self._timer is not None:
            if self._at_ns <= at_ns:
                return
            self._timer.cancel()
        self._at_ns = at_ns
        delay_s = max(0, at_ns - self._clock.monotonic_ns()) / 1e9
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timed.clear()

    def _ring(self) -> None:
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        moved = self._table.take_due(now_ns)
        for each in self._timed.values():
            moved += self._table.expire(each.id, max(0, now_ns - each.ack_timeout_ns))
        if moved:
            self._came_back()
        self.arm()
