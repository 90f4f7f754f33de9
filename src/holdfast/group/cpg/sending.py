"""Send frames without waiting, few at a time, again if the carrier is busy.

A frame that is not full waits while others are on their way. So frames fill by themselves under load, and an
event alone leaves at once. Every frame comes back to its sender, which is the signal for the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.group.cpg.carrier import CarrierLost

BACK_OFF_S = (0.001, 0.016)
"""The first and the longest wait of a busy carrier."""


class Changes:
    """Wakes tasks that wait for any change of the group."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def next(self) -> None:
        """Wait for the next change."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def tell(self) -> None:
        done, self._next = self._next, None
        if done is not None and not done.done():
            done.set_result(None)


class Sender:
    """Sends control frames first, then what `next_frame` offers.

    `next_frame` gets the number of frames on their way, and returns a frame and the call to make once it is
    sent. It returns None if nothing shall be sent now.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[bytes], bool],
        next_frame: Callable[[int], tuple[bytes, Callable[[], None]] | None],
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._send = send
        self._next_frame = next_frame
        self._lost = lost
        self._controls: deque[bytes] = deque()
        self._under_way = 0
        self._flush: asyncio.Handle | None = None
        self._wait_s = 0.0
        self._stopped = False

    def control(self, data: bytes) -> None:
        """Send a frame before all others."""
        self._controls.append(data)
        self.soon()

    def soon(self, delay_s: float = 0.0) -> None:
        """Send in the next turn of the loop, unless the carrier is busy."""
        if self._flush is None and not self._stopped:
            later = max(delay_s, self._wait_s)
            if later:
                self._flush = self._loop.call_later(later, self._run)
            else:
                self._flush = self._loop.call_soon(self._run)

    def came_back(self) -> None:
        """Note that an own frame was ordered."""
        self._under_way = max(0, self._under_way - 1)
        self.soon()

    def forget(self) -> None:
        """Count no earlier frame: after another list, some may never come back."""
        self._under_way = 0

    def stop(self) -> None:
        self._stopped = True
        if self._flush is not None:
            self._flush.cancel()

    def _offered(self) -> tuple[bytes, Callable[[], object]] | None:
        if self._controls:
            return self._controls[0], self._controls.popleft
        return self._next_frame(self._under_way)

    def _run(self) -> None:
        self._flush = None
        try:
            while not self._stopped:
                offered = self._offered()
                if offered is None:
                    return
                data, sent = offered
                if not self._send(data):
                    low, high = BACK_OFF_S
                    self._wait_s = min(max(low, 2 * self._wait_s), high)
                    self.soon()
                    return
                self._wait_s = 0.0
                self._under_way += 1
                sent()
        except CarrierLost as lost:
            self._lost(str(lost))
