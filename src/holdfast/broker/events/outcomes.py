"""Outcomes of events. A refusal is an error instead."""

from __future__ import annotations

import msgspec

from holdfast.group import Member
from holdfast.ids import MessageId

NO_ID = MessageId(-1, -1)
"""The id of a duplicate, which was not published again."""


class Done(msgspec.Struct, frozen=True):
    """The event was applied."""

    changed: bool = True
    """False: the state was so before, or a condition no longer held."""


class Published(msgspec.Struct, frozen=True):
    """Positions of the entries of a publish. They are consecutive, in one ledger.

    Example:
        >>> published = Published(MessageId(7, 4), ordinal=9, count=2, duplicates=(1,))
        >>> [str(id) for id in published.ids(3)]
        ['7:4', '-1:-1', '7:5']
        >>> [str(id) for id in Published(MessageId(7, 4), ordinal=9, count=2).ids(3, batch=2)]
        ['7:4:0', '7:4:1', '7:5:0']
    """

    first: MessageId
    ordinal: int
    count: int
    """Number of new entries."""
    duplicates: tuple[int, ...] = ()
    """Indexes of the entries in the event that were published before."""

    def ids(self, count: int, batch: int = 1) -> list[MessageId]:
        """Return the ids of `count` messages, with `batch` messages in an entry."""
        ledger, entry, _ = self.first
        if ledger < 0:  # all are duplicates, or the topic is an exchange, which has no positions
            return [NO_ID] * count
        if batch == 1 and not self.duplicates:
            return [MessageId(ledger, entry + at) for at in range(count)]
        known, ids = set(self.duplicates), list[MessageId]()
        for at in range((count + batch - 1) // batch):
            messages = min(batch, count - at * batch)
            if at in known:
                ids += [NO_ID] * messages
            else:
                ids += [MessageId(ledger, entry, index if batch > 1 else -1) for index in range(messages)]
                entry += 1
        return ids


class TopicCreated(msgspec.Struct, frozen=True):
    topic: int


class TopicTerminated(msgspec.Struct, frozen=True):
    end: int
    """The ordinal after its last entry."""
    last: MessageId
    """Id of its last entry; −1:−1 if it is empty."""


class SchemaAdded(msgspec.Struct, frozen=True):
    version: int
    """From 0 on, per topic."""


class Trimmed(msgspec.Struct, frozen=True):
    ledgers: list[int]
    """Ids of the deleted ledgers."""
    first: int
    """The first ordinal that is kept."""
    entries: int = 0
    """Number of entries that a truncation deleted."""


class SubscriptionCreated(msgspec.Struct, frozen=True):
    subscription: int
    acked_to: int


class Revised(msgspec.Struct, frozen=True):
    """Position of a subscription after a reset, a fence or an advance."""

    reset_number: int
    target: int


class ProducerOpened(msgspec.Struct, frozen=True):
    session: int
    name: str
    """The given name, or a chosen one."""
    epoch: int
    """Its publishes carry this epoch."""
    last_sequence: int
    """The last sequence of this name in the topic; −1 for a new name."""
    waiting: bool = False
    """Other producers are attached: it may publish after `ProducerReady`."""


class ConsumerJoined(msgspec.Struct, frozen=True):
    session: int
    reset_number: int


class Staged(msgspec.Struct, frozen=True):
    """The content of a stage for one topic, as its receipt has it."""

    count: int
    digest: int


class Committed(msgspec.Struct, frozen=True):
    committed: bool
    """False: this batch, or a later one, was committed before; its stages are dropped."""
    batch: int
    """The last batch that was committed."""


class Moved(msgspec.Struct, frozen=True):
    """The rows of a move that took effect, by their indexes in the event."""

    rows: tuple[int, ...] = ()


class Dropped(msgspec.Struct, frozen=True):
    entries: int
    """Number of entries that left a backlog; an entry counts once for each subscription."""


class Asked(msgspec.Struct, frozen=True):
    """A request to the owner of a subscription was passed on."""

    answerer: Member
