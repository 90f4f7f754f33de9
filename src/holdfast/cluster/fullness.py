"""Full disks of members: one that has no room leaves the group.

```
 events wait for room ──► FULL_S ──► are the others a majority? ──┬─ yes ──► the engine ends: it is lost
                                                                 └─ no ───► it stays, and says so
 lost ──► wait for room, for a time that grows ──► join again
```

Applying an event never asks the disk, so a full disk changes no decision. Only the hold stops. A member that
holds nothing new still serves stale topics, and its clients would wait. So it must leave.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence

from holdfast.broker import Broker, BrokerOptions
from holdfast.cluster.relay import Relay
from holdfast.errors import Closed, NoSpace
from holdfast.system import Clock, Disk, Randomness

LOG = logging.getLogger("holdfast.cluster")

FULL_S = 5.0
"""Time for which a member's events may wait for room. Half of it more is random: two do not leave at once."""
LOOK_S = 0.5
"""How often it is checked."""
WAIT_S = (0.5, 30.0)
"""Pause before a member with a full disk joins again: the first, and the longest."""


def is_for_room(error: BaseException) -> bool:
    """Return whether an error means a full disk.

    Example:
        >>> is_for_room(NoSpace("the disk is full")), is_for_room(OSError(5, "I/O error"))
        (True, False)
    """
    return isinstance(error, NoSpace) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )


def words_of(error: BaseException) -> str:
    """Say why a life ended; a full disk also if only the system said so.

    Example:
        >>> words_of(OSError(28, "No space left on device")), words_of(Closed("it left"))
        ('its disk is full (No space left on device); free space on it', 'Closed: it left')
    """
    if isinstance(error, OSError) and not isinstance(error, NoSpace) and is_for_room(error):
        return f"its disk is full ({error.strerror}); free space on it"
    return f"{type(error).__name__}: {error}"


class Fullness:
    """Watches a member's disk, and delays its next life until there is room."""

    def __init__(self, node: int, nodes: Sequence[int], options: BrokerOptions) -> None:
        self._node, self._nodes = node, nodes
        self._wanted_bytes = options.reserve_bytes + options.journal_bytes
        self._pause_s = WAIT_S[0]
        self._task: asyncio.Task[None] | None = None
        self.found = False
        """Whether the last life ended by a full disk."""
        self.reason = ""
        """While the member serves: why its events wait."""

    # -- while it serves -------------------------------------------------------------------------------

    def watch(self, broker: Broker, relay: Relay, clock: Clock, random: Randomness) -> None:
        """Watch a broker until `stop`."""
        self.reason = ""
        limit_s = FULL_S * (1 + random.fraction() / 2)
        watching = self._watch(broker, relay, clock, limit_s)
        self._task = asyncio.get_running_loop().create_task(watching, name="holdfast-disk-watch")

    async def stop(self) -> None:
        """End the watch."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, broker: Broker, relay: Relay, clock: Clock, limit_s: float) -> None:
        while True:
            await clock.sleep(LOOK_S)
            stalled_s = broker.stalled_s
            if stalled_s == 0.0 and self.reason:
                LOG.warning("there is room on the disk again; this node continues")
                self.reason = ""
            if stalled_s < limit_s:
                continue
            words = f"its disk is full: events have waited for room for {stalled_s:.0f} s; free space on it"
            if self._others_go_on(relay):
                self.found = True
                broker.engine.end(Closed(words))
                return
            if not self.reason:
                LOG.error("%s. It stays in the group: without it there is no majority", words)
            self.reason = words

    def _others_go_on(self, relay: Relay) -> bool:
        """Return whether the other members of the view are a majority of the nodes."""
        view = relay.view
        others = set() if view is None else {member.node for member in view.members} - {self._node}
        return len(others & set(self._nodes)) > len(self._nodes) // 2

    # -- before the next life --------------------------------------------------------------------------

    async def wait(self, disk: Disk, clock: Clock, closed: Callable[[], bool]) -> None:
        """After a full disk, wait for room, at most for a growing time.

        It ends without room, too: a copy may remove what the others have trimmed meanwhile.
        """
        if not self.found:
            return
        self.found = False
        waited_s, limit_s = 0.0, self._pause_s
        self._pause_s = min(2 * self._pause_s, WAIT_S[1])
        while waited_s < limit_s and not closed():
            try:
                if await disk.free() >= self._wanted_bytes:
                    self._pause_s = WAIT_S[0]
                    return
            except OSError:
                pass  # it is tried with the join
            await clock.sleep(WAIT_S[0])
            waited_s += WAIT_S[0]


__all__ = ["Fullness", "is_for_room", "words_of"]
