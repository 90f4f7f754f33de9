"""Find the reason why a subscription makes no progress.

A backlog that does not shrink mostly has a cause among the consumers: no consumer, no permits, messages that
are not acknowledged. The diagnosis names the first cause that holds, or says that nothing stops it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.broker.dispatch.types import ConsumerStats, Diagnosis, Reason
from holdfast.formatting import plural


@dataclass(frozen=True)
class Look:
    """The figures of a diagnosis."""

    backlog: int
    idle_s: float
    """Since the last progress."""
    consumers: Sequence[ConsumerStats] = ()
    """In the order of choice."""
    single: bool = False
    """Only the first consumer is served."""
    unread: int = 0
    """Entries that wait to be read, for the first time or again."""
    ahead: int = 0
    """Of these, entries that were read and wait for the consumers of their keys."""
    keys_wait: Callable[[], str] = str
    """Says which keys wait for which consumers."""
    scheduled: int = 0
    """Entries whose delivery time has not come."""
    scheduled_ms: int = 0
    """The first of these times, in ms since 1970."""
    delayed: int = 0
    """Entries that wait for their time after a negative acknowledgement."""
    delayed_s: float = math.inf
    """Seconds until the first of them is due."""
    under_revision_s: float | None = None
    reading: tuple[str, int, float] | None = None
    """Kind, start and age in seconds of the oldest read in flight."""
    read_error: str = ""
    damaged: str = ""
    """The error of the next entry, if it is damaged. The server closes consumers that meet it."""
    unacked_max: int = 0
    held_max: int = 0
    """Unacknowledged messages that all consumers together may hold; 0: any number."""
    held: int = 0
    """Those that they hold."""
    paced: bool = False
    """A read waits for a rate."""
    owner: str = ""
    """Another member that dispatches; empty: this one does."""


def diagnose(look: Look, stuck_after_s: float) -> Diagnosis:
    """Say why a subscription makes no progress.

    A subscription without consumers is not stuck: its consumers are offline. But it is stuck if they found
    damage.

    Example:
        >>> found = diagnose(Look(backlog=7, idle_s=45, unread=7), stuck_after_s=30)
        >>> found.reason, found.stuck
        ('no consumers', False)
    """
    reason, text = _reason(look)
    return judged(look, reason, text, stuck_after_s)


def judged(look: Look, reason: str, text: str, stuck_after_s: float) -> Diagnosis:
    """Return the diagnosis of a reason that was found."""
    wanted = (Reason.NO_CONSUMERS, Reason.OWNED_ELSEWHERE, Reason.RATE_LIMITED, Reason.SCHEDULED)
    stuck = look.backlog > 0 and look.idle_s >= stuck_after_s and reason not in wanted
    return Diagnosis(reason, text, look.idle_s, stuck)


def _reason(look: Look) -> tuple[str, str]:
    served = look.consumers[:1] if look.single else look.consumers
    willing = [each for each in served if each.permits > 0 and not each.paused]
    if look.backlog == 0:
        return Reason.NO_BACKLOG, "everything that is visible is acknowledged"
    if look.under_revision_s is not None:
        text = f"a reset has been under way for {look.under_revision_s:.1f} s, and reads are refused"
        return Reason.UNDER_REVISION, text
    if look.owner:
        text = f"member {look.owner} owns the subscription, and delivers it to consumers there"
        return Reason.OWNED_ELSEWHERE, text
    if look.damaged:
        return Reason.READ_FAILED, f"the next entry is damaged: {look.damaged}"
    if not served:
        return Reason.NO_CONSUMERS, f"{plural(look.backlog, 'entry')}, and no consumer"
    if look.unread == 0 and look.reading is None:
        holders = _holders(look.consumers)
        if look.delayed:
            delayed = plural(look.delayed, "entry")
            text = f"{delayed} to redeliver later, the first in {look.delayed_s:.1f} s; {holders}"
            return Reason.DELAYED, text
        held = sum(each.pending_entries for each in look.consumers)
        waits = f"{plural(look.scheduled, 'entry')} until their delivery time"
        waits += f", the first {_moment(look.scheduled_ms)}"
        if look.scheduled and not held:
            return Reason.SCHEDULED, waits
        text = f"all entries were delivered and are not acknowledged: {holders}"
        if look.scheduled:
            text = f"all due entries were delivered and are not acknowledged: {holders}; {waits}"
        return Reason.ALL_PENDING, text
    unread = plural(look.unread, "entry")
    if not willing:
        paused = [each for each in served if each.paused and each.permits > 0]
        text = f"{unread} to read, no permits at {_names(served)}: the queues there are full"
        if paused:
            text = f"{unread} to read, and {_names(paused)} do not read what they were sent"
        return Reason.NO_PERMITS, text
    if look.unacked_max and all(each.pending_messages >= look.unacked_max for each in willing):
        text = f"a consumer may hold {plural(look.unacked_max, 'unacknowledged message')}: {_holders(served)}"
        return Reason.UNACKED_LIMIT, text
    if 0 < look.held_max <= look.held:
        most = plural(look.held_max, "unacknowledged message")
        return Reason.UNACKED_LIMIT, f"the subscription may hold {most}: {_holders(served)}"
    if look.paced:
        return Reason.RATE_LIMITED, f"{unread} to read, and a rate of deliveries delays them"
    if look.ahead:
        return Reason.KEYS_WAIT, f"{plural(look.ahead, 'entry')} read; {look.keys_wait()}"
    if look.reading is not None:
        kind, start, age_s = look.reading
        return Reason.READ_IN_FLIGHT, f"a {kind} read from {start} on has been in flight for {age_s:.1f} s"
    if look.read_error:
        return Reason.READ_FAILED, f"the last read failed, and is retried: {look.read_error}"
    return Reason.NOTHING, f"{unread} to read, permits at {_names(willing)}, no read in flight"


def _moment(ms: int) -> str:
    try:
        return f"at {datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return "after the year 9999"


def _names(consumers: Sequence[ConsumerStats]) -> str:
    shown = ", ".join(each.name for each in consumers[:5])
    return shown if len(consumers) <= 5 else f"{shown} and {len(consumers) - 5} more"


def _holders(consumers: Sequence[ConsumerStats]) -> str:
    holding = [each for each in consumers if each.pending_entries]
    if not holding:
        return "no consumer holds messages"
    holding.sort(key=lambda each: -each.pending_entries)
    shown = ", ".join(f"{each.name} holds {each.pending_entries}" for each in holding[:5])
    oldest = max(each.oldest_pending_s for each in holding)
    return f"{shown}; the oldest for {oldest:.1f} s"
