"""Stats of a broker: frozen dataclasses, with units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.dispatch.types import DispatcherStats
    from holdfast.ledger import StoreStats


@dataclass(frozen=True)
class LedgerStats:
    """One ledger of a topic."""

    id: int
    entries: int
    size_bytes: int
    sealed: bool


@dataclass(frozen=True)
class SubscriptionStats:
    """A subscription: its acknowledgements and its consumers."""

    name: str
    durable: bool
    backlog: int
    """The exact number of entries that are visible and not acknowledged."""
    mark_delete: str
    """The id up to which, inclusive, everything is acknowledged."""
    read_position: str
    """The id that the next sequential read begins with."""
    individually_acknowledged: int
    """Entries above the mark-delete position that are acknowledged."""
    partly_acknowledged: int
    """Batches of which some messages are acknowledged."""
    reset_number: int
    """Number of resets, over all restarts."""
    under_revision: bool
    """A reset is under way: reads are refused."""
    dispatch: DispatcherStats | None
    """None while no consumer has attached since the broker was opened."""


@dataclass(frozen=True)
class TopicStats:
    """A topic."""

    name: str
    incarnation: str
    first: str
    """The id of the first entry that is kept."""
    last: str
    """The id of the last visible entry."""
    entries: int
    size_bytes: int
    terminated: bool
    producers: list[str]
    ledgers: list[LedgerStats]
    subscriptions: dict[str, SubscriptionStats] = field(default_factory=dict)


@dataclass(frozen=True)
class BrokerStats:
    """The whole broker."""

    topics: int
    subscriptions: int
    events: int
    """D: durable events, over all restarts."""
    stable: str
    """The position up to which everything is confirmed."""
    pending_bytes: int
    """Bytes that wait for the disk."""
    store: StoreStats
    log_time_ahead_s: float = 0.0
    """Seconds by which log time is ahead of the clock. Ages stand still until the clock catches up."""
