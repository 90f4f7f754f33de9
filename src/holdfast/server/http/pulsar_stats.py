"""Compute stats of topics and subscriptions in the form of Pulsar's tools.

An answer is computed in small steps, however many consumers, producers, ledgers and ranges it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.broker import (
    ConsumerStats,
    Dispatcher,
    DrainingHash,
    Handed,
    KeyStats,
    SubscriptionState,
    Topic,
)
from holdfast.ids import MessageId
from holdfast.ledger import LedgerInfo
from holdfast.server.http.answers import (
    BacklogAnswer,
    BacklogCursor,
    BacklogLedger,
    CompactionSummary,
    ConsumerAnswer,
    CursorAnswer,
    DrainingAnswer,
    InfoAnswer,
    InfoCursor,
    InfoLedger,
    InfoPosition,
    InfoRange,
    InternalAnswer,
    LedgerAnswer,
    PublisherAnswer,
    SubscriptionAnswer,
    TopicAnswer,
)
from holdfast.server.http.limit_answers import QUOTAS
from holdfast.server.http.positions import before, count_ranges, holes, next_of
from holdfast.server.steps import Steps

if TYPE_CHECKING:
    from holdfast.server.http.server import HttpServer
    from holdfast.server.pulsar.delivery import WireConsumer
    from holdfast.server.pulsar.producers import WireProducer

_ACCESS = {
    "shared": "Shared",
    "exclusive": "Exclusive",
    "wait-for-exclusive": "WaitForExclusive",
    "exclusive-with-fencing": "ExclusiveWithFencing",
}


_TYPES = {
    "exclusive": "Exclusive",
    "failover": "Failover",
    "shared": "Shared",
    "key_shared": "Key_Shared",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_NS = 253_402_300_800 * 1_000_000_000

LEDGER = 0.1
"""Items of a step (see `Steps`) for each ledger."""


def moment(time_ns: int) -> str:
    """Write a time in ISO format; beyond the year 9999, as milliseconds.

    Example:
        >>> moment(0), moment((1 << 64) * 1_000_000)
        ('1970-01-01T00:00:00.000+00:00', '18446744073709551616')
    """
    if time_ns >= _YEAR_10000_NS:
        return str(milliseconds(time_ns))
    return (_EPOCH + timedelta(milliseconds=milliseconds(time_ns))).isoformat(timespec="milliseconds")


def milliseconds(time_ns: int) -> int:
    return time_ns // 1_000_000


class Looks:
    """Computes one answer from a broker and its clients."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._broker = server.broker
        self._steps = Steps()

    # -- stats -----------------------------------------------------------------------------------------

    async def topic(self, topic: Topic, earliest: bool = False) -> TopicAnswer:
        """Return stats; with `earliest`, also the time of each backlog's oldest message."""
        counted = self._broker.rates.published(topic)
        rates = self._broker.rates.of_topic(topic)
        handed = self._broker.rates.handed(topic)
        last = topic.ledgers.last
        answer = TopicAnswer(
            unreplicated=self._broker.unreplicated.is_local,
            msg_rate_in=rates[0],
            msg_throughput_in=rates[1],
            bytes_in_counter=counted.bytes,
            msg_in_counter=counted.messages,
            **_out(rates[3:5], handed),
            average_msg_size=counted.bytes / counted.messages if counted.messages else 0.0,
            storage_size=topic.ledgers.size,
            backlog_size=topic.size_behind(topic.acked_to),
            publishers=await self._publishers(topic),
            waiting_publishers=topic.producers_waiting,
            deduplication_status=("Enabled" if self._broker.deduplicates(topic) else "Disabled"),
            topic_creation_time_stamp=milliseconds(topic.created),
            last_publish_time_stamp=0 if last is None else milliseconds(last.last_time),
            **self._quotas(topic),
            compaction=self._compaction(topic),
            dropped_entries=self._broker.admin.dropped(topic.name),
            alternate=self._broker.admin.alternate(topic.name),
        )
        for name, subscription in sorted(topic.subscriptions.items()):
            found = await self._subscription(topic, subscription, earliest)
            answer.subscriptions[name] = found
            answer.non_contiguous_deleted_messages_ranges += found.non_contiguous_deleted_messages_ranges
        for name, dispatcher in sorted(topic.volatile.items()):
            answer.subscriptions.setdefault(name, await self._volatile(dispatcher))
        return answer

    def _compaction(self, topic: Topic) -> CompactionSummary:
        if not topic.has_compaction:
            return CompactionSummary()
        found = self._broker.admin.compaction(topic.name)
        return CompactionSummary(
            last_compaction_removed_event_count=found.read - found.kept,
            last_compaction_succeed_timestamp=milliseconds(found.time),
            last_compaction_failed_timestamp=milliseconds(found.error_time),
            last_compaction_duration_time_in_mills=found.duration_ms,
        )

    def _quotas(self, topic: Topic) -> dict[str, Any]:
        found = self._broker.limiting.figures(topic)
        age_s = found.oldest_s
        return {
            "backlog_quota_limit_size": found.backlog_bytes or -1,
            "backlog_quota_limit_time": math.ceil(found.backlog_age_s) or -1,
            "oldest_backlog_message_age_seconds": -1 if age_s is None else int(age_s),
            "publish_rate_limited_times": found.publish_waits,
            "backlog_exceeded": bool(found.exceeded),
            "backlog_exceeded_by": {QUOTAS[name]: action for name, action in found.exceeded.items()},
        }

    async def _subscription(
        self, topic: Topic, subscription: SubscriptionState, earliest: bool
    ) -> SubscriptionAnswer:
        acks = subscription.acks
        dispatcher = topic.dispatcher_of(subscription)
        if dispatcher is None:  # no consumer has joined since the start
            found = topic.diagnose(subscription)
            answer = SubscriptionAnswer(diagnosis=f"{found.reason}: {found.text}")
        else:
            answer = await self._served(dispatcher, subscription.id)
        answer.msg_backlog = topic.backlog(subscription)
        answer.msg_backlog_no_delayed = answer.msg_backlog - answer.msg_delayed
        answer.backlog_size = topic.size_behind(acks.acked_to)
        answer.non_contiguous_deleted_messages_ranges = await count_ranges(acks, self._steps)
        answer.subscription_properties = subscription.properties
        if earliest and (oldest := await topic.time_on(acks.acked_to)) is not None:
            answer.earliest_msg_publish_time_in_backlog = milliseconds(oldest)
        await self._steps.did(1 + LEDGER * len(topic.ledgers))
        return answer

    async def _volatile(self, dispatcher: Dispatcher) -> SubscriptionAnswer:
        answer = await self._served(dispatcher, dispatcher.subscription[0])
        answer.is_durable = answer.durable = False
        answer.msg_backlog = answer.msg_backlog_no_delayed = dispatcher.backlog
        return answer

    async def _served(self, dispatcher: Dispatcher, id: int) -> SubscriptionAnswer:  # noqa: A002
        looked: list[ConsumerStats] = []
        consumers: list[ConsumerAnswer] = []
        limit = dispatcher.unacked_max
        attached = {each.ticket: each for each in self._attached(dispatcher)}
        keys = dispatcher.key_stats()
        for ticket in dispatcher.consumer_ids():
            each = dispatcher.consumer_stats(ticket)
            if each is not None:  # else it has left meanwhile
                looked.append(each)
                consumers.append(self._consumer(id, each, attached.get(ticket), limit))
                if ticket in keys:
                    _add_keys(consumers[-1], keys[ticket])
            await self._steps.did(1 + len(keys) / 10)
        await self._steps.did(2)
        stats, handed, away = dispatcher.stats(tuple(looked)), dispatcher.handed, dispatcher.keys_elsewhere()
        rates = self._broker.rates.per_second(("subscription", id), handed)
        active = next((each.name for each in stats.consumers if each.active), None)
        return SubscriptionAnswer(
            **_out(rates, handed),
            msg_delayed=stats.scheduled_entries,
            delayed_message_index_size_in_bytes=stats.scheduled_bytes,
            msg_in_replay=stats.replay_entries,
            unacked_messages=sum(each.pending_messages for each in stats.consumers),
            blocked_subscription_on_unacked_msgs=dispatcher.holds_most,
            type=_TYPES[stats.type] if stats.type and stats.consumers else "",
            active_consumer_name=active if stats.type in ("exclusive", "failover") else None,
            consumers=consumers,
            allow_out_of_order_delivery=bool(stats.consumers)
            and (stats.type == "shared" or dispatcher.is_unordered),
            key_shared_mode=dispatcher.key_mode.upper() if dispatcher.key_mode else None,
            draining_hashes_count=len(away) + sum(each.draining_hashes_count for each in consumers),
            draining_hashes_cleared_total=sum(each.draining_hashes_cleared_total for each in consumers),
            draining_hashes_unacked_messages=sum(each.entries for each in away)
            + sum(each.draining_hashes_unacked_messages for each in consumers),
            draining_elsewhere=_draining(away[:1000]),
            diagnosis=f"{stats.diagnosis.reason}: {stats.diagnosis.text}",
        )

    def _attached(self, dispatcher: Dispatcher) -> list[WireConsumer]:
        wire = self._server.wire
        return [] if wire is None else [*wire.attached.get(dispatcher, ())]

    def _consumer(
        self, subscription: int, stats: ConsumerStats, wire: WireConsumer | None, limit: int
    ) -> ConsumerAnswer:
        handed = Handed(stats.delivered_messages, stats.delivered_bytes)
        rates = self._broker.rates.per_second(("consumer", subscription, stats.id), handed)
        answer = ConsumerAnswer(
            **_out(rates, handed),
            consumer_name=stats.name,
            available_permits=stats.permits,
            unacked_messages=stats.pending_messages,
            blocked_consumer_on_unacked_msgs=0 < limit <= stats.pending_messages,
            priority_level=stats.priority,
        )
        if wire is not None:
            _add_client(answer, wire)
        return answer

    async def _publishers(self, topic: Topic) -> list[PublisherAnswer]:
        wire = self._server.wire
        found = []
        for session, producer in sorted(topic.producers.items()):
            answer = PublisherAnswer(
                access_mode=_ACCESS[producer.access], producer_id=session, producer_name=producer.name
            )
            client = None if wire is None else wire.producers.get(session)
            if client is not None:
                counts = (client.messages_in, client.bytes_in)
                rates = self._broker.rates.per_second(("producer", session), counts)
                answer.msg_rate_in, answer.msg_throughput_in = rates
                answer.average_msg_size = counts[1] / counts[0] if counts[0] else 0.0
                _add_client(answer, client)
            found.append(answer)
            await self._steps.did()
        return found

    # -- from the inside -------------------------------------------------------------------------------

    async def internal(self, topic: Topic) -> InternalAnswer:
        """Return a topic's ledgers and cursors."""
        ledgers = list(topic.ledgers)
        last = ledgers[-1] if ledgers and not ledgers[-1].sealed else None
        cursors, shown = {}, []
        added = self._broker.rates.published(topic).entries  # now: the topic may be deleted meanwhile
        view = self._broker.admin.compaction(topic.name)
        for each in ledgers:
            shown.append(LedgerAnswer(ledger_id=each.id, entries=_visible(topic, each), size=each.size))
            await self._steps.did(LEDGER)
        for name, subscription in sorted(topic.subscriptions.items()):
            cursors[name] = await self._cursor(topic, subscription)
        return InternalAnswer(
            entries_added_counter=added,
            number_of_entries=topic.visible - topic.first,
            total_size=topic.ledgers.size,
            current_ledger_entries=0 if last is None else _visible(topic, last),
            current_ledger_size=0 if last is None else last.size,
            last_ledger_created_timestamp=moment(ledgers[-1].opened_time) if ledgers else None,
            waiting_cursors_count=sum(cursor.waiting_read_op for cursor in cursors.values()),
            pending_add_entries_count=topic.ledgers.end - topic.visible,
            last_confirmed_entry=str(topic.last_id()),
            state="Terminated" if topic.terminated else "LedgerOpened",
            ledgers=shown,
            cursors=cursors,
            compacted_ledger=LedgerAnswer(ledger_id=view.ledger, entries=view.entries, size=view.size)
            if view.view
            else LedgerAnswer(ledger_id=-1, entries=-1, size=-1),
        )

    async def _cursor(self, topic: Topic, subscription: SubscriptionState) -> CursorAnswer:
        acks, dispatcher = subscription.acks, topic.dispatcher_of(subscription)
        shown = ",".join(
            [f"({lower}..{upper}]" async for lower, upper in holes(topic, subscription, self._steps)]
        )
        ranges = await count_ranges(acks, self._steps)
        await self._steps.did(2)
        stats = None if dispatcher is None else dispatcher.stats(consumers=())  # not needed in the answer
        read = acks.next_unacked(max(acks.acked_to, topic.first)) if stats is None else stats.read_position
        return CursorAnswer(
            mark_delete_position=str(before(topic, acks.acked_to)),
            read_position=str(next_of(topic, read)),
            waiting_read_op=stats is not None and stats.waiting,
            pending_read_ops=0 if stats is None else len(stats.reading),
            messages_consumed_counter=acks.acked_to + acks.holes_count,
            individually_deleted_messages=f"[{shown}]",
            active=dispatcher is not None and dispatcher.consumers > 0,
            number_of_entries_since_first_not_acked_message=topic.visible - min(acks.acked_to, topic.visible),
            total_non_contiguous_deleted_messages_range=ranges,
            subscription_have_pending_read=(
                stats is not None and (stats.waiting or "sequential" in stats.reading)
            ),
            subscription_have_pending_replay_read=stats is not None and "replay" in stats.reading,
            revision_num=subscription.reset_number + (0 if dispatcher is None else dispatcher.rewinds),
            is_under_revision=int(dispatcher is not None and dispatcher.under_revision),
            reset_number=subscription.reset_number,
            partly_acknowledged=acks.partial_count,
            owner="" if subscription.owner is None else str(subscription.owner),
            owner_epoch=subscription.owner_epoch,
        )

    async def info(self, topic: Topic) -> InfoAnswer:
        """Return a topic's metadata, as Pulsar's metadata store has it."""
        ledgers = list(topic.ledgers)
        cursors, shown = {}, []
        for ledger in ledgers:
            shown.append(
                InfoLedger(
                    ledger_id=ledger.id,
                    entries=ledger.entries if ledger.sealed else None,
                    size=ledger.size if ledger.sealed else None,
                    timestamp=milliseconds(ledger.last_time) if ledger.sealed else None,
                )
            )
            await self._steps.did(LEDGER)
        for name, each in sorted(topic.subscriptions.items()):
            cursors[name] = InfoCursor(
                mark_delete=_info(before(topic, each.acks.acked_to)),
                individual_deleted_messages=[
                    InfoRange(lower_endpoint=_info(lower), upper_endpoint=_info(upper))
                    async for lower, upper in holes(topic, each, self._steps)
                ],
            )
            await self._steps.did()
        changed = ledgers[-1].last_time if ledgers else topic.created
        return InfoAnswer(
            creation_date=moment(topic.created),
            modification_date=moment(changed),
            ledgers=shown,
            terminated_position=_info(topic.last_id()) if topic.terminated else None,
            cursors=cursors,
        )

    async def backlog(self, topic: Topic) -> BacklogAnswer:
        """Return the backlog of each subscription."""
        left, shown = {}, []
        for name, subscription in sorted(topic.subscriptions.items()):
            left[name] = topic.backlog(subscription)
            await self._steps.did(LEDGER)
        for each in list(topic.ledgers):
            shown.append(
                BacklogLedger(
                    entries=_visible(topic, each),
                    timestamp=milliseconds(each.last_time),
                    size=each.size,
                    ledger_id=each.id,
                )
            )
            await self._steps.did(LEDGER)
        return BacklogAnswer(
            storage_size=topic.ledgers.size,
            total_messages=topic.visible - topic.first,
            message_backlog=sum(left.values()),
            broker_name=self._server.name,
            topic_name=topic.name,
            data_ledger_details=shown,
            cursor_details={name: BacklogCursor(cursor_backlog=count) for name, count in left.items()},
            stat_generated_at=milliseconds(self._broker.clock.now_ns()),
        )


def _add_keys(answer: ConsumerAnswer, keys: KeyStats) -> None:
    shown = keys.ranges[:1000]
    answer.key_hash_ranges = [f"[{first}, {last}]" for first, last in shown]
    answer.key_hash_range_arrays = [*shown]
    answer.draining_hashes_count = keys.draining_count
    answer.draining_hashes_cleared_total = keys.drained
    answer.draining_hashes_unacked_messages = keys.draining_entries
    answer.draining_hashes = _draining(keys.draining)


def _draining(hashes: Sequence[DrainingHash]) -> list[DrainingAnswer]:
    return [
        DrainingAnswer(
            hash=each.hash,
            unack_msgs=each.entries,
            blocked_attempts=each.blocked,
            waiting_consumer=each.waiting,
            held_at=each.holder,
        )
        for each in hashes
    ]


def _out(rates: Sequence[float], handed: Handed) -> dict[str, Any]:
    """Return the fields of `Rates`: deliveries per second, and in all."""
    return {
        "msg_rate_out": rates[0],
        "msg_throughput_out": rates[1],
        "bytes_out_counter": handed.bytes,
        "msg_out_counter": handed.messages,
    }


def _add_client(answer: ConsumerAnswer | PublisherAnswer, client: WireConsumer | WireProducer) -> None:
    """Add the client's connection to an answer."""
    answer.address = client.connection.address
    answer.client_version = client.connection.client_version
    answer.connected_since = moment(client.opened_ns)
    answer.metadata = client.metadata


def _visible(topic: Topic, ledger: LedgerInfo) -> int:
    """Count the visible entries of a ledger (I63)."""
    return max(0, min(ledger.end, topic.visible) - ledger.first)


def _info(id: MessageId) -> InfoPosition:  # noqa: A002
    return InfoPosition(ledger_id=id.ledger, entry_id=id.entry)
