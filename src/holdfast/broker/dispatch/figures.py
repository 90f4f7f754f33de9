"""Figures of a dispatcher for stats, metrics and diagnoses."""

from __future__ import annotations

from holdfast._core import Dispatch
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.looking import Looking
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.dispatch.types import (
    ConsumerStats,
    Cursor,
    Diagnosis,
    DispatcherStats,
    DispatchOptions,
    DrainingHash,
    KeyStats,
    TopicReader,
)
from holdfast.broker.ranges import Ranges
from holdfast.broker.state import SubscriptionType
from holdfast.broker.telemetry.traffic import Handed
from holdfast.errors import Corrupt


class Figures:
    """The figures of a dispatcher; nothing here changes it."""

    options: DispatchOptions
    _topic: TopicReader
    _cursor: Cursor
    _type: SubscriptionType | None
    _consumers: dict[int, Attached]
    _table: Dispatch
    _acking: Acking
    _reading: Reading
    _looking: Looking
    _keys: Keys
    _tenure: Tenure | None
    _handed_messages: int
    _handed_bytes: int

    @property
    def tenure(self) -> Tenure | None:
        """Its part in the ownership; None: no other member has the subscription."""
        return self._tenure

    @property
    def has_work(self) -> bool:
        """Whether there are entries to read."""
        return self._reading.has_work

    @property
    def is_busy(self) -> bool:
        """Whether reads are under way, or can be started."""
        return self._reading.is_busy

    @property
    def elsewhere(self) -> Ranges:
        """Entries that consumers of other members hold."""
        return self._acking.elsewhere

    @property
    def backlog(self) -> int:
        """The exact number of entries that are visible and not acknowledged."""
        return self._looking.backlog

    @property
    def damage(self) -> tuple[int, Corrupt] | None:
        """The next entry and its error, if the last attempt found it damaged."""
        return self._reading.damage

    @property
    def partial_batches(self) -> int:
        """Number of batches of which some messages are acknowledged, or about to be."""
        return self._cursor.acks.partial_count + self._acking.parts

    @property
    def handed(self) -> Handed:
        """Messages and bytes delivered by this dispatcher, also to consumers that have left."""
        return Handed(self._handed_messages, self._handed_bytes)

    def handed_to(self) -> list[tuple[int, Handed]]:
        """Return messages and bytes delivered to each consumer, by its id."""
        consumers = self._consumers.values()
        return [(each.id, Handed(each.handed_messages, each.handed_bytes)) for each in consumers]

    def check(self) -> None:
        """Assert I50 to I53 in the tables, and that the position is within the topic."""
        self._table.check()
        assert self._reading.position <= max(self._topic.visible, self._cursor.acks.acked_to)

    def diagnose(self) -> Diagnosis:
        """Say why the subscription makes no progress."""
        return self._diagnose(self._looking.consumers(self._consumers))

    def _diagnose(self, consumers: tuple[ConsumerStats, ...]) -> Diagnosis:
        return self._looking.diagnose(consumers, self.options.stuck_after_s)

    def stats(self, consumers: tuple[ConsumerStats, ...] | None = None) -> DispatcherStats:
        """Return stats; `consumers` if the caller has collected theirs one by one."""
        consumers = self._looking.consumers(self._consumers) if consumers is None else consumers
        return self._looking.stats(self._type, consumers, self._diagnose(consumers))

    def key_stats(self) -> dict[int, KeyStats]:
        """Return the part of each consumer in the keys of a key_shared subscription, by consumer."""
        return self._keys.stats()

    def keys_elsewhere(self) -> list[DrainingHash]:
        """Return hashes that drain at other members. The owner knows all of them."""
        return self._keys.elsewhere()

    @property
    def key_mode(self) -> str:
        """How consumers of type key_shared share keys: auto_split or sticky; empty: there are none."""
        sharing = self._keys.sharing if self._consumers else None
        return "" if sharing is None else sharing.mode

    @property
    def is_unordered(self) -> bool:
        """Whether consumers of type key_shared get keys without order."""
        sharing = self._keys.sharing if self._consumers else None
        return sharing is not None and sharing.unordered

    @property
    def unacked_max(self) -> int:
        """The most unacknowledged messages of a consumer; 0: no limit."""
        return self._table.unacked_max

    @property
    def holds_most(self) -> bool:
        """Whether the consumers hold as many messages as the subscription may hold."""
        return 0 < self._table.held_max <= self._table.held_messages

    def consumer_ids(self) -> list[int]:
        """Return the ids of the consumers, in the order in which they are served."""
        return [row[0] for row in self._table.consumers()]

    def consumer_stats(self, consumer: int) -> ConsumerStats | None:
        """Return stats of one consumer, at a constant cost; None: it has left."""
        found = self._consumers.get(consumer)
        return None if found is None else self._looking.consumer(found)
