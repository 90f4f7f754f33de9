"""Close a broker within a time, also on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast.errors import Closed, HoldfastError, NoSpace

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker

CLOSE_S = 120.0
"""Time for a close, by default.

At most half of it is for events under way; then their futures fail. Half of the rest is for leaving the
group, what remains for the last snapshot.
"""


async def settle_and_leave(broker: Broker, reason: Closed, ends_s: float) -> bool:
    """Give events under way their outcome, and leave the group, before a deadline.

    Returns:
        Whether all that was applied is stable, and can become durable: then a last snapshot is possible.
    """
    engine, loop = broker.engine, asyncio.get_running_loop()
    with contextlib.suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout((ends_s - loop.time()) / 2):
            require_room(broker)
            await engine.answered()
            engine.refuse(reason)  # also events of other threads
            await engine.answered()
    with contextlib.suppress(HoldfastError, TimeoutError):  # also if the store has failed
        async with asyncio.timeout((ends_s - loop.time()) / 2):
            await broker.group.leave()
    # Outside of its group a member does not learn that its last events are stable: no snapshot.
    stable = not broker.is_member or engine.stable >= engine.position
    return engine.ended is None and stable and not broker.store.stalled_s


def require_room(broker: Broker) -> None:
    """Raise if no event can become durable any more.

    Raises:
        NoSpace: its disk is full, and events wait for room.
        Closed: the broker has ended.
    """
    if broker.engine.ended is not None:
        raise Closed(f"the broker has ended: {broker.engine.ended}")
    if broker.store.stalled_s:
        raise NoSpace("the disk is full, so the last events cannot become durable; free space on it")
