"""Types of a dispatcher: its interfaces, options and stats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

from holdfast._core import Batch, Entries
from holdfast.broker.dispatch.revision import Revision
from holdfast.broker.events import Event
from holdfast.broker.options import SECONDS_MOST, DeliveryOptions
from holdfast.broker.state import Consumer, SubscriptionType
from holdfast.errors import Misuse
from holdfast.group import Member
from holdfast.ledger import AckState

Submit: TypeAlias = Callable[[Event], "asyncio.Future[Any]"]
"""Puts an event into the one order; the future has its outcome when it is stable."""

PRIORITY_MOST = (1 << 31) - 1
"""The largest priority: the tables have 32 bits for it."""


def require_options(priority: Any, ack_timeout_s: float | None) -> None:
    """Check a consumer's options before anything is changed for it.

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


def require_delay(delay_s: Any, of: str = "redelivery") -> None:
    """Check a delay; None: the back-off of redeliveries decides.

    Raises:
        Misuse: the delay is not a number of seconds from 0 to `SECONDS_MOST`.
    """
    if delay_s is None:
        return
    if not isinstance(delay_s, int | float) or not 0 <= delay_s <= SECONDS_MOST:
        raise Misuse(
            f"a delay of {delay_s!r} s before {of}; use 0 to {SECONDS_MOST:.0f}"
            + (", or None for one that grows each time" if of == "redelivery" else "")
        )


def require_view(subscription: str, type: str, compacted: bool, there: bool) -> None:  # noqa: A002
    """Check that a consumer may read the compacted view, or all messages.

    Args:
        there: whether the consumers of the subscription read the compacted view.

    Raises:
        Misuse: its type has no order, or the other consumers read something else.
    """
    if compacted and type in ("shared", "key_shared"):
        raise Misuse(
            f"a {type} consumer of {subscription} cannot read the compacted view: it is for exclusive and "
            "failover subscriptions, and for readers"
        )
    if compacted != there:
        what = "the compacted view" if there else "all messages"
        raise Misuse(
            f"the consumers of subscription {subscription} read {what}; a new one has to read the same"
        )


class TopicReader(Protocol):
    """A topic, as a dispatcher reads it: ordinals in `[first, visible)`."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def visible(self) -> int: ...

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        """Read a run of at least one entry from an ordinal on."""

    def note_damage(self, ordinal: int) -> None:
        """Remember an entry that could not be read."""


class Cursor(Protocol):
    """The state of a subscription. Only events change it."""

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
    def delivered(self) -> list[tuple[int, int]]: ...
    @property
    def owner_epoch(self) -> int: ...
    @property
    def acks(self) -> AckState: ...
    @property
    def consumers(self) -> Mapping[int, Consumer]: ...
    @property
    def full(self) -> Set[int]: ...
    @property
    def held(self) -> Mapping[Member, list[tuple[int, int]]]: ...
    @property
    def hashes(self) -> Mapping[Member, bytes]: ...


class Endpoint(Protocol):
    """The end of a consumer. Called on the loop; it may call the dispatcher."""

    def deliver(self, batch: Batch) -> None:
        """Take messages. The consumer owns them until it acknowledges them or gives them back."""

    def cleared(self, reset_number: int) -> None:
        """Drop messages that were not taken yet: they are void, or will be redelivered.

        Permits stay as they are. An endpoint that drops messages grants permits anew (`Dispatcher.grant`).
        """

    def active(self, active: bool) -> None:
        """Note whether this consumer of an exclusive or failover subscription is the active one."""

    def failed(self, error: Exception) -> None:
        """Note that the next entry is damaged; reads of it are retried."""

    def closed(self, reason: Exception) -> None:
        """Note that nothing more will be delivered."""


@dataclass(frozen=True)
class DispatchOptions(DeliveryOptions):
    """Options of a dispatcher: those of its broker, and fixed sizes and times.

    Example:
        >>> DispatchOptions(nack_first_s=0.5).nack_factor
        2.0
    """

    read_entries: int = 1000
    """Largest number of entries in one read."""
    read_bytes: int = 512 << 10
    """Largest number of bytes in one read, except for a single entry that is larger. A client that does not
    read its socket costs one such read beyond its write buffer."""
    turn_entries: int = 20
    """Entries that one consumer of a shared subscription gets before the next one's turn."""
    nack_factor: float = 2.0
    """Factor by which the delay of redelivery grows with each negative acknowledgement of a message."""
    retry_first_s: float = 0.1
    """Delay after a read that failed. It doubles up to `retry_most_s`."""
    retry_most_s: float = 10.0
    ahead_entries: int = 100_000
    """Entries of a key_shared subscription that were read and wait for their consumers. While there are more,
    nothing further is read."""
    stuck_after_s: float = 30.0
    """Time without progress after which a backlog with consumers is reported as stuck."""

    @classmethod
    def of(cls, options: DeliveryOptions) -> DispatchOptions:
        """Take the shared options from those of a broker."""
        return cls(**{each.name: getattr(options, each.name) for each in fields(DeliveryOptions)})

    def back_off(self, delay_s: float | None) -> tuple[float, float, float]:
        """Return the first delay of redelivery, its factor and the longest delay.

        Raises:
            Misuse: the delay is out of its range.
        """
        require_delay(delay_s)
        if delay_s is None:
            return self.nack_first_s, self.nack_factor, self.nack_most_s
        return delay_s, 1.0, delay_s


@dataclass(frozen=True)
class DrainingHash:
    """A hash whose new consumer waits until the old one has acknowledged its messages."""

    hash: int
    entries: int
    """Entries of it that the old consumer holds."""
    blocked: int
    """How often an entry had to wait."""
    waiting: str
    """Name of the consumer that waits; empty: none has this hash."""
    holder: str = ""
    """The consumer, or the other member, that holds the entries; empty: the consumer of these stats."""


@dataclass(frozen=True)
class KeyStats:
    """The part of one consumer in the keys of its subscription."""

    ranges: tuple[tuple[int, int], ...] = ()
    """Hashes that belong to it, both ends included."""
    draining: tuple[DrainingHash, ...] = ()
    """Hashes of which it holds entries, and that belong to another consumer now."""
    draining_count: int = 0
    draining_entries: int = 0
    drained: int = 0
    """Hashes that it has passed on after it had acknowledged their entries."""


@dataclass(frozen=True)
class ConsumerStats:
    """One consumer of a subscription."""

    id: int
    name: str
    priority: int
    active: bool
    """Whether it is served: always, on a shared subscription."""
    permits: int
    """Messages that it may still be sent; below zero by less than one entry."""
    pending_entries: int
    """Delivered to it and not acknowledged."""
    pending_messages: int
    delivered_entries: int
    delivered_messages: int
    redelivered_entries: int
    oldest_pending_s: float
    """Time since the oldest pending entry was delivered."""
    delivered_bytes: int = 0
    paused: bool = False
    """It gets nothing, even with permits: its connection is slow to read."""
    keys: KeyStats | None = None
    """Of a key_shared consumer, where all consumers are asked for."""


class Reason:
    """Reasons why a subscription makes no progress. `Diagnosis.reason` is one of these."""

    NO_BACKLOG = "no backlog"
    UNDER_REVISION = "under revision"
    NO_CONSUMERS = "no consumers"
    OWNED_ELSEWHERE = "another member owns it"
    READ_FAILED = "read failed"
    READ_IN_FLIGHT = "read in flight"
    NO_PERMITS = "no permits"
    UNACKED_LIMIT = "unacknowledged limit"
    RATE_LIMITED = "rate limited"
    DELAYED = "waiting for negative acknowledgements"
    SCHEDULED = "waiting for delivery times"
    ALL_PENDING = "all unacknowledged entries are pending"
    KEYS_WAIT = "keys wait for their consumers"
    NOTHING = "nothing stops it"


@dataclass(frozen=True)
class Diagnosis:
    """Why a subscription makes no progress."""

    reason: str
    """One of `Reason`."""
    text: str
    """The reason as a sentence, with names, numbers and times."""
    idle_s: float
    """Time since the last delivery, acknowledgement or move of the cursor."""
    stuck: bool
    """There are consumers and a backlog, and it has been idle for too long."""


@dataclass(frozen=True)
class DispatcherStats:
    """Stats of one subscription and its consumers."""

    type: SubscriptionType | None
    """None: no consumer was attached yet."""
    revision: Revision
    """Reset number, owner epoch, rewind number."""
    revisions: int
    """Number of changes of the position other than by reads, since this dispatcher exists."""
    under_revision: bool
    under_revision_s: float
    read_position: int
    """The ordinal that the next sequential read begins with."""
    acked_to: int
    backlog: int
    """The exact number of entries that are visible and not acknowledged."""
    consumers: tuple[ConsumerStats, ...]
    """In the order in which they are served: by priority, then by time of joining."""
    pending_entries: int
    replay_entries: int
    """To be read again."""
    delayed_entries: int
    """Negatively acknowledged, and not yet due."""
    reading: tuple[str, ...]
    """The kinds of the reads in flight."""
    waiting: bool
    """A consumer has permits, and all visible entries are read."""
    reads_sequential: int
    reads_replay: int
    reads_refused: int
    """Not started, because a reset was under way."""
    reads_dropped: int
    """Started, and not used, because the revision had changed."""
    entries_released: int
    """Entries of dropped reads."""
    entries_filtered: int
    """Read, and not delivered, because they were acknowledged."""
    acks_outdated: int
    """Messages that were delivered before a reset, so that their acknowledgement had no effect."""
    last_error: str
    """Error of the last read; empty if it succeeded."""
    diagnosis: Diagnosis
    scheduled_entries: int = 0
    """Read, and held back until their delivery time."""
    scheduled_bytes: int = 0
    """Memory that this takes."""
    entries_damaged: int = 0
    """Skipped because they were damaged on the disk (`skip_damaged`)."""
    owner: str = ""
    """The member that dispatches; empty: no member, or the subscription is of this one alone."""
    standing: str = "owner"
    """Whether this member dispatches: owner, releasing or other."""
    members_waiting: tuple[str, ...] = ()
    """Other members that want to dispatch."""
