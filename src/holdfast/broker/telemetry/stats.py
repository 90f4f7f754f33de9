"""Stats of a broker: frozen dataclasses, with units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.dispatch.types import DispatcherStats, DrainingHash
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
    owner: str = ""
    """The member that dispatches; empty: no consumer is attached to any member."""
    owner_epoch: int = 0
    """Rises with every owner and every view, over all restarts."""
    type: str = ""
    """Of the attached consumers, as Pulsar writes it; empty: none is attached. (Of a server.)"""
    consumers: tuple[str, ...] = ()
    """The names of the attached consumers. (Of a server; otherwise in `dispatch`.)"""
    diagnosis: str = ""
    """Why no message is delivered, if none is. (Of a server; otherwise in `dispatch`.)"""
    scheduled: int = 0
    """Entries that are held back until their delivery time. (Of a server; otherwise in `dispatch`.)"""
    draining: tuple[DrainingHash, ...] = ()
    """Hashes of keys that wait for their former consumers. (Of a server; otherwise in `dispatch`.)"""


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
    dropped: int = 0
    """Entries that a ring or last-value topic dropped from backlogs; once for each subscription."""
    alternate: str | None = None
    """The exchange to which rejected messages go."""
    unreplicated: bool = False
    """One member of a cluster alone has it."""
    exceeded: dict[str, str] = field(default_factory=dict)
    """Backlog quotas that stop its producers, `size` and `age`, with their actions; empty: none."""


@dataclass(frozen=True)
class ExchangeStats:
    """An exchange. Its counts are since its creation: `published` = `routed` + `to_alternate` + `dropped`."""

    name: str
    kind: str
    alternate: str | None
    """The exchange that takes what no binding matches."""
    unreplicated: bool
    producers: list[str]
    bindings: list[tuple[str, str]]
    """Topic, and key or pattern."""
    published: int
    """Entries that were published or passed on to it; a batch that was split counts by its messages."""
    routed: int
    to_alternate: int
    dropped: int
    """Entries that no binding matched, and no alternate took."""
    appended: int
    """Copies in topics."""


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
