"""What events are answered. A refusal is an error instead."""

from __future__ import annotations

import msgspec

from holdfast.ids import MessageId

NO_ID = MessageId(-1, -1)
"""In the place of the id of what was not published, because it was before."""


class Done(msgspec.Struct, frozen=True):
    """It is as asked for."""

    changed: bool = True
    """False: it was so before, or a condition did not hold any more."""


class Published(msgspec.Struct, frozen=True):
    """Where the entries of a publish stand. They are in one ledger, one after another.

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
    """Entries that are new."""
    duplicates: tuple[int, ...] = ()
    """Which of the entries were published before, by their place in the event."""

    def ids(self, count: int, batch: int = 1) -> list[MessageId]:
        """The ids of so many messages, of which `batch` make an entry."""
        ledger, entry, _ = self.first
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
    """The ordinal behind its last entry."""
    last: MessageId
    """Of its last entry; −1:−1 if there is none."""


class SchemaAdded(msgspec.Struct, frozen=True):
    version: int
    """From 0 on, along a topic."""


class Trimmed(msgspec.Struct, frozen=True):
    ledgers: list[int]
    """The ids of those that are gone."""
    first: int
    """The first ordinal that is left."""


class SubscriptionCreated(msgspec.Struct, frozen=True):
    subscription: int
    acked_to: int


class Revised(msgspec.Struct, frozen=True):
    """Where a subscription stands after a reset, a fence or an advance."""

    reset_number: int
    target: int


class ProducerOpened(msgspec.Struct, frozen=True):
    session: int
    name: str
    """As given, or made up."""
    epoch: int
    """What its publishes carry."""
    last_sequence: int
    """Of this name, as the topic knows it; −1."""
    waiting: bool = False
    """Others are there: it may publish when it is told so (`ProducerReady`)."""


class ConsumerJoined(msgspec.Struct, frozen=True):
    session: int
    reset_number: int


class Staged(msgspec.Struct, frozen=True):
    """What a stage holds for a topic: with its id, the receipt that a commit asks for."""

    count: int
    digest: int


class Committed(msgspec.Struct, frozen=True):
    committed: bool
    """False: this batch, or a later one, was committed before; its stages are dropped."""
    batch: int
    """The last that was committed."""
