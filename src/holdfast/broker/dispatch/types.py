"""What a dispatcher is given, what it is told, and what a look at it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from holdfast._core import Batch, Entries
from holdfast.broker.dispatch.revision import Revision
from holdfast.broker.events import Event
from holdfast.broker.options import SECONDS_MOST
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Misuse
from holdfast.ledger.acks import AckState

Submit: TypeAlias = Callable[[Event], "asyncio.Future[Any]"]
"""Puts an event into the one order; the future has its outcome when it is stable."""

PRIORITY_MOST = (1 << 31) - 1
"""The tables keep 32 bits of it."""


def require_options(priority: Any, ack_timeout_s: float | None) -> None:
    """Check what a consumer asks for before anything is changed for it.

    Raises:
        Misuse: an option is out of its range.
    """
    if not isinstance(priority, int) or not -PRIORITY_MOST <= priority <= PRIORITY_MOST:
        raise Misuse(f"a priority of {priority!r}; use a whole number of at most {PRIORITY_MOST}, 0 is usual")
    if ack_timeout_s is not None and not 0 < ack_timeout_s <= SECONDS_MOST:
        raise Misuse(
            f"an ack timeout of {ack_timeout_s} s; use more than 0 and at most {SECONDS_MOST:.0f}, or "
            "None for no timeout"
        )


def require_delay(delay_s: Any) -> None:
    """Check how long a message is to stay away; None: the back-off decides.

    Raises:
        Misuse: it is no number of seconds from 0 to a century.
    """
    if delay_s is None:
        return
    if not isinstance(delay_s, int | float) or not 0 <= delay_s <= SECONDS_MOST:
        raise Misuse(
            f"a delay of {delay_s!r} s before a message comes again; use 0 to {SECONDS_MOST:.0f}, or None "
            "for one that grows each time"
        )


class TopicReader(Protocol):
    """The topic, as far as it may be seen: ordinals in `[first, visible)`."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def visible(self) -> int: ...

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        """A run from this ordinal on: at least one entry."""


class Cursor(Protocol):
    """The subscription's state: changed by events alone, as they are applied."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def reset_number(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def reach(self) -> int: ...
    @property
    def owner_epoch(self) -> int: ...
    @property
    def acks(self) -> AckState: ...


class Endpoint(Protocol):
    """A consumer's end: called on the loop. It may call the dispatcher back."""

    def deliver(self, batch: Batch) -> None:
        """These messages are its own until it acknowledges them or gives them back."""

    def cleared(self, reset_number: int) -> None:
        """Drop what was not taken yet: it is void, or is delivered again.

        Permits stay as they are. An endpoint that drops messages grants permits anew (`Dispatcher.grant`).
        """

    def active(self, active: bool) -> None:
        """Of an exclusive or failover subscription: it is the one that is served, or is no longer."""

    def failed(self, error: Exception) -> None:
        """What should come next is damaged on the disk. It is tried again; a seek or a skip leads past it."""

    def closed(self, reason: Exception) -> None:
        """Nothing more will come."""


@dataclass(frozen=True)
class DispatchOptions:
    """How a subscription is served.

    Example:
        >>> DispatchOptions(nack_first_s=0.5).nack_factor
        2.0
    """

    read_entries: int = 1000
    """At most so many entries in one read."""
    read_bytes: int = 512 << 10
    """At most so many bytes in one read, except for one entry that is larger. A client that does not read is
    sent one read more than its write buffer takes: this is what an idle reader costs."""
    turn_entries: int = 20
    """Shared: so many entries go to one consumer before it is the next one's turn."""
    unacked_max: int = 0
    """A consumer that holds so many unacknowledged messages is given no more; 0: no limit."""
    nack_first_s: float = 1.0
    """How long a message stays away after its first negative acknowledgement."""
    nack_factor: float = 2.0
    """By how much that grows with every further one."""
    nack_most_s: float = 60.0
    guard_s: float = 30.0
    """A reset that has not ended after this time is fenced off; tried again each time it passes."""
    retry_first_s: float = 0.1
    """After a read that failed; doubles up to `retry_most_s`."""
    retry_most_s: float = 10.0
    skip_damaged: bool = False
    """An entry that is damaged is acknowledged, left out and counted. Else consumers get the error."""
    stuck_after_s: float = 30.0
    """A backlog without any progress for so long is reported as stuck, if there are consumers."""

    def back_off(self, delay_s: float | None) -> tuple[float, float, float]:
        """For how long a message stays away: at first, the factor by which that grows, at most.

        Raises:
            Misuse: a delay that cannot be counted.
        """
        require_delay(delay_s)
        if delay_s is None:
            return self.nack_first_s, self.nack_factor, self.nack_most_s
        return delay_s, 1.0, delay_s


@dataclass(frozen=True)
class ConsumerStats:
    """One consumer of a subscription."""

    id: int
    name: str
    priority: int
    active: bool
    """It is served: always, on a shared subscription."""
    permits: int
    """Messages that it may still be given; below zero by less than one entry."""
    pending_entries: int
    """Given to it and not acknowledged."""
    pending_messages: int
    delivered_entries: int
    delivered_messages: int
    redelivered_entries: int
    oldest_pending_s: float
    """How long it has held the entry that it has held longest."""
    delivered_bytes: int = 0
    paused: bool = False
    """It gets nothing, whatever its permits: its connection is slow to read."""


class Reason:
    """Why a subscription stands still. `Diagnosis.reason` is one of these."""

    NO_BACKLOG = "no backlog"
    UNDER_REVISION = "under revision"
    NO_CONSUMERS = "no consumers"
    READ_FAILED = "read failed"
    READ_IN_FLIGHT = "read in flight"
    NO_PERMITS = "no permits"
    UNACKED_LIMIT = "unacknowledged limit"
    DELAYED = "waiting for negative acknowledgements"
    ALL_PENDING = "all unacknowledged entries are pending"
    NOTHING = "nothing stops it"


@dataclass(frozen=True)
class Diagnosis:
    """What keeps a subscription from going on."""

    reason: str
    """One of `Reason`."""
    text: str
    """The same with names, numbers and times, for people."""
    idle_s: float
    """How long ago something was delivered, acknowledged or moved."""
    stuck: bool
    """There are consumers and a backlog, and it has been idle for too long."""


@dataclass(frozen=True)
class DispatcherStats:
    """A look at how one subscription is served."""

    type: SubscriptionType | None
    """None: it has had no consumer yet."""
    revision: Revision
    """Reset number, owner epoch, rewind number."""
    revisions: int
    """How often the position was changed by something other than reading, since this dispatcher was made."""
    under_revision: bool
    under_revision_s: float
    read_position: int
    """The ordinal that the next sequential read begins with."""
    acked_to: int
    backlog: int
    """Visible and not acknowledged, in entries, exactly."""
    consumers: tuple[ConsumerStats, ...]
    """In the order of choice: best priority first, then who joined first."""
    pending_entries: int
    replay_entries: int
    """To be read again."""
    delayed_entries: int
    """Negatively acknowledged; they wait for their time."""
    reading: tuple[str, ...]
    """The kinds of the reads in flight."""
    waiting: bool
    """Somebody could be given more, and there is no more."""
    reads_sequential: int
    reads_replay: int
    reads_refused: int
    """Not begun, because the cursor was under revision."""
    reads_dropped: int
    """Begun, and not used, because the revision had changed."""
    entries_released: int
    """Let go of by those."""
    entries_filtered: int
    """Read, and not handed out, because they were acknowledged."""
    acks_outdated: int
    """Messages whose acknowledgement came from before a reset, and had no effect."""
    last_error: str
    """Of the last read that failed; empty while reading succeeds."""
    diagnosis: Diagnosis
    entries_damaged: int = 0
    """Left out because they were damaged on the disk (`skip_damaged`)."""
