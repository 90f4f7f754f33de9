"""Stats of a dispatcher: its counts, its consumers, and why it makes no progress."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from holdfast._core import Dispatch
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.stuck import Look, diagnose
from holdfast.broker.dispatch.types import (
    ConsumerStats,
    Cursor,
    Diagnosis,
    DispatcherStats,
    TopicReader,
)
from holdfast.broker.state import SubscriptionType
from holdfast.system import Clock


class Looking:
    """Makes the stats of one dispatcher from its parts."""

    def __init__(
        self,
        topic: TopicReader,
        cursor: Cursor,
        table: Dispatch,
        resetting: Resetting,
        acking: Acking,
        reading: Reading,
        clock: Clock,
        keys: Keys,
        tenure: Tenure | None = None,
    ) -> None:
        self._topic = topic
        self._cursor = cursor
        self._table = table
        self._resetting = resetting
        self._acking = acking
        self._reading = reading
        self._clock = clock
        self._keys = keys
        self._tenure = tenure
        self._progress_ns = clock.monotonic_ns()

    def progress(self) -> None:
        """Note that something was delivered, acknowledged or moved."""
        self._progress_ns = self._clock.monotonic_ns()

    @property
    def backlog(self) -> int:
        """The exact number of entries that are visible and not acknowledged."""
        acks = self._cursor.acks
        return max(0, acks.count(self._topic.visible) - acks.count(self._reading.first))

    def stats(
        self,
        type: SubscriptionType | None,  # noqa: A002  # the word that users know
        consumers: tuple[ConsumerStats, ...],
        diagnosis: Diagnosis,
    ) -> DispatcherStats:
        table, reading, revision = self._table, self._reading, self._resetting.revision
        window = revision.window
        return DispatcherStats(
            type=type,
            revision=revision.number,
            revisions=self._resetting.revisions,
            under_revision=revision.under_revision,
            under_revision_s=0.0 if window is None else self._since_s(window.since_ns),
            read_position=reading.position,
            acked_to=self._cursor.acks.acked_to,
            backlog=self.backlog,
            consumers=consumers,
            pending_entries=table.pending_entries,
            replay_entries=table.replay_entries,
            delayed_entries=table.delayed_entries,
            scheduled_entries=table.scheduled_entries,
            scheduled_bytes=table.scheduled_bytes,
            reading=reading.in_flight,
            waiting=table.wanted > 0 and reading.position >= self._topic.visible,
            reads_sequential=reading.begun["sequential"],
            reads_replay=reading.begun["replay"],
            reads_refused=reading.refused,
            reads_dropped=reading.dropped,
            entries_released=reading.released,
            entries_filtered=table.filtered_entries,
            acks_outdated=self._acking.outdated,
            last_error=reading.last_error,
            diagnosis=diagnosis,
            entries_damaged=reading.damaged,
            owner=self.owner,
            standing="owner" if self._tenure is None else self._tenure.standing,
            members_waiting=() if self._tenure is None else tuple(map(str, self._tenure.waiting)),
        )

    @property
    def owner(self) -> str:
        """The member that dispatches; empty: none does, or the subscription is of this member alone."""
        owner = None if self._tenure is None else self._tenure.subscription.owner
        return "" if owner is None else str(owner)

    def consumer(self, attached: Attached) -> ConsumerStats:
        """Return stats of one consumer, at a constant cost."""
        return self._consumer(attached, self._table.consumer(attached.id))

    def consumers(self, attached: Mapping[int, Attached]) -> tuple[ConsumerStats, ...]:
        """Return stats of all consumers, in the order in which they are served."""
        found = (self._consumer(attached[row[0]], row) for row in self._table.consumers())
        if not self._table.keyed:
            return tuple(found)
        keys = self._keys.stats()
        return tuple(replace(each, keys=keys.get(each.id)) for each in found)

    def _consumer(
        self, attached: Attached, row: tuple[int, int, int, int, int, int, int, bool]
    ) -> ConsumerStats:
        oldest = self._table.oldest_ns(attached.id)
        return ConsumerStats(
            *(attached.id, attached.name, attached.priority, attached.is_active),
            *row[1:7],
            oldest_pending_s=self._since_s(oldest) if oldest else 0.0,
            delivered_bytes=attached.handed_bytes,
            paused=row[7],
        )

    def diagnose(self, consumers: tuple[ConsumerStats, ...], stuck_after_s: float) -> Diagnosis:
        """Say why the subscription makes no progress."""
        acks, reading, due = self._cursor.acks, self._reading, self._table.next_due
        window, read = self._resetting.revision.window, reading.oldest()
        unread, scheduled = acks.count(self._topic.visible) - acks.count(reading.position), 0
        if self._table.scheduled_entries and not reading.has_work:
            unread, scheduled = 0, self._table.scheduled_entries
        look = Look(
            backlog=self.backlog,
            idle_s=self._since_s(self._progress_ns),
            consumers=consumers,
            single=self._table.single,
            unread=max(0, unread) + self._table.replay_entries,
            ahead=self._table.replay_entries if self._table.keyed and not reading.is_busy else 0,
            keys_wait=self._keys.text,
            scheduled=scheduled,
            scheduled_ms=self._table.next_scheduled if scheduled else 0,
            delayed=self._table.delayed_entries,
            delayed_s=-self._since_s(due) if due else math.inf,
            under_revision_s=None if window is None else self._since_s(window.since_ns),
            reading=None if read is None else (read.kind, read.start, self._since_s(read.began_ns)),
            read_error=reading.last_error,
            damaged="" if (found := reading.damage) is None else str(found[1]),
            unacked_max=self._table.unacked_max,
            held_max=self._acking.held_max,
            held=self._table.held_messages + (self._acking.away if self._acking.held_max else 0),
            paced=reading.pace is not None and reading.pace.waiting,
            owner=self.owner if self._reading.halted else "",
        )
        return diagnose(look, stuck_after_s)

    def _since_s(self, then_ns: int) -> float:
        return (self._clock.monotonic_ns() - then_ns) / 1e9
