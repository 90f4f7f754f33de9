"""Keep events coming in a quiet cluster: they show which member hangs.

A group evicts a member that does not take an event. A quiet cluster has no event of its own, and clients
would wait for ever for the topics of a member that hangs.
"""

from __future__ import annotations

import asyncio

from holdfast.broker import Broker
from holdfast.group import Position

LOOKS = 8
"""Looks in the time after which a cluster counts as quiet."""
LOOK_S = 0.05
"""The shortest time between two looks."""
TURN = 0.25
"""How much later the next member takes its turn, as a part of that time."""


class Silence:
    """How long no event was delivered.

    Example:
        >>> silence = Silence(Position(256, 7), now=0.0)
        >>> silence.lasts(Position(256, 7), 29.0, 30.0), silence.lasts(Position(256, 7), 30.0, 30.0)
        (False, True)
        >>> silence.lasts(Position(256, 8), 31.0, 30.0), silence.lasts(Position(256, 8), 60.0, 30.0)
        (False, False)
    """

    def __init__(self, position: Position, now: float) -> None:
        self._position, self._since = position, now

    def lasts(self, position: Position, now: float, limit_s: float) -> bool:
        """Return whether nothing was delivered for `limit_s`; then the time begins anew."""
        if position == self._position and now - self._since < limit_s:
            return False
        lasts = position == self._position
        self._position, self._since = position, now
        return lasts


async def pulse(broker: Broker, quiet_s: float) -> None:
    """Let this member announce itself again whenever the cluster was quiet, until it is cancelled.

    The lowest member is first. The next ones only do it if that one does not, because it is the one that
    stands still.
    """
    loop, membership = asyncio.get_running_loop(), broker.membership
    silence = Silence(membership.group_stats().delivered, loop.time())
    while True:
        await asyncio.sleep(max(LOOK_S, quiet_s / LOOKS))
        stats = membership.group_stats()
        lower = sum(each < stats.member for each in membership.view)
        if silence.lasts(stats.delivered, loop.time(), quiet_s * (1 + TURN * lower)):
            membership.repeat()


__all__ = ["Silence", "pulse"]
