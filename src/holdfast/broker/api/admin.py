"""Administration: topics, subscriptions, positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core import TopicMessage, parse_entry
from holdfast.broker.api.bulk_admin import BulkAdmin
from holdfast.broker.api.compaction_admin import CompactionAdmin
from holdfast.broker.api.consumer import Start
from holdfast.broker.api.exchange_admin import ExchangeAdmin
from holdfast.broker.api.limits_admin import LimitsAdmin
from holdfast.broker.api.rights_admin import RightsAdmin
from holdfast.broker.events import (
    DeduplicationForget,
    LedgerRoll,
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    PolicySet,
    SchemaDelete,
    SubscriptionDelete,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
    TimeRepair,
    TopicDelete,
    TopicTerminate,
    TopicTruncate,
)
from holdfast.broker.policy import trim_event
from holdfast.broker.state import SILENT, Policies, SubscriptionState, Tenant
from holdfast.broker.telemetry.stats import LedgerStats, SubscriptionStats, TopicStats
from holdfast.broker.topic import Topic
from holdfast.errors import Busy, Corrupt, Misuse, NotFound
from holdfast.formatting import plural
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.names import any_topic_name, checked_name, topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker

PEEK_BYTES = 8 << 20
YEAR_10000_MS = 253_402_300_800_000


class Admin(BulkAdmin, CompactionAdmin, ExchangeAdmin, LimitsAdmin, RightsAdmin):
    """Administration of topics, subscriptions, tenants and namespaces.

    Each call returns when its effect is durable.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         await broker.admin.create_topic("orders")
        ...         await broker.admin.create_subscription("orders", "billing")
        ...         print(broker.admin.topics(), broker.admin.subscriptions("orders"))
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        ['persistent://public/default/orders'] ['billing']
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # -- topics ----------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        unreplicated: bool = False,
        properties: Mapping[str, str] | None = None,
        **policies: Any,
    ) -> None:
        """Create a topic. Policies are those of `set_policies`.

        With `unreplicated`, this member of a cluster alone has it, in a log of its own.

        Raises:
            Exists: there is a topic of that name.
            Misuse: it would be unreplicated, and this broker is alone.
        """
        if unreplicated:
            if properties:
                raise Misuse(f"{name} cannot be created with properties; set them when it is there")
            await self._broker.unreplicated.create_topic(name, _of_topic(policies))
            return
        await self._broker.create_topic(topic_name(name), _of_topic(policies), properties)

    async def delete_topic(self, name: str, force: bool = False) -> None:
        """Delete a topic with its messages and subscriptions.

        Raises:
            Busy: the topic has producers, subscriptions or readers, and `force` was not given.
        """
        topic = self._topic(name)
        if topic.readers and not force:
            raise Busy(
                f"{topic.name} has {plural(topic.readers, 'reader')}; close all of them first, or force"
            )
        await self._submit(TopicDelete(topic.state.id, force))

    async def create_partitioned_topic(
        self, name: str, partitions: int, properties: Mapping[str, str] | None = None, **policies: Any
    ) -> None:
        """Create a topic with partitions, each a topic of its own: `orders-partition-0` and so on.

        Raises:
            Exists: a topic has the name, or that of a partition.
        """
        await self._broker.partitioned.create(
            any_topic_name(name), partitions, _of_topic(policies), properties
        )

    async def grow_partitions(self, name: str, partitions: int) -> None:
        """Add partitions to a topic; they get the subscriptions of partition 0.

        Raises:
            NotFound: there is no partitioned topic of the name.
            Misuse: it has more partitions, or is not partitioned.
        """
        await self._broker.partitioned.grow(any_topic_name(name), partitions)

    async def delete_partitioned_topic(self, name: str, force: bool = False) -> None:
        """Delete a topic with all partitions.

        Raises:
            Busy: a partition has producers, subscriptions or readers, and `force` was not given.
        """
        await self._broker.partitioned.delete(any_topic_name(name), force)

    def partitions(self, name: str) -> int:
        """Return the number of partitions of a topic; 0: it has none."""
        return self._broker.partitioned.count(any_topic_name(name))

    def partitioned_topics(self) -> dict[str, int]:
        """Return the numbers of partitions of all partitioned topics, by name."""
        return self._broker.partitioned.counts()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted. Each partition is one."""
        return sorted(topic.state.name for topic in self._broker.topics.values())

    def topic_stats(self, name: str) -> TopicStats:
        """Return stats of a topic, its ledgers and its subscriptions."""
        topic = self._topic(name)
        state = topic.state
        subscriptions = {
            name: self._subscription_stats(topic, each) for name, each in sorted(topic.subscriptions.items())
        }
        ledgers = [LedgerStats(each.id, each.entries, each.size, each.sealed) for each in state.ledgers]
        return TopicStats(
            name=state.name,
            incarnation=state.incarnation.hex(),
            first=str(topic.id_of(topic.first)) if topic.visible > topic.first else "-",
            last=str(topic.last_id()) if topic.visible > topic.first else "-",
            entries=topic.visible - topic.first,
            size_bytes=state.ledgers.size,
            terminated=state.terminated,
            producers=sorted(each.name for each in state.producers.values()),
            ledgers=ledgers,
            subscriptions=subscriptions,
            dropped=self.dropped(name),
            alternate=self.alternate(name),
            unreplicated=self._broker.unreplicated.is_local,
            exceeded=state.exceeded,
        )

    async def terminate(self, name: str) -> MessageId:
        """Refuse further publishes to a topic; return the id of its last message."""
        topic = self._topic(name)
        await self._submit(TopicTerminate(topic.state.id))
        return topic.last_id()

    async def truncate(self, name: str) -> None:
        """Delete all messages of a topic; every subscription advances to the end."""
        await self._submit(TopicTruncate(self._topic(name).state.id))

    def policies(self, name: str) -> Policies:
        """Return the topic's own policies; None: the value from above applies."""
        return self._topic(name).state.policies

    async def set_policies(self, name: str, **policies: Any) -> None:
        """Change policies of a topic; None: those of its namespace or the broker apply again.

        The names are those of the fields of `Policies`.

        Raises:
            Misuse: a name is unknown, or a value is impossible, or the policy is one of namespaces only.
        """
        topic = self._topic(name)
        await self._submit(PolicySet(topic.state.id, _of_topic(policies), sorted(policies)))

    async def delete_schema(self, name: str) -> int:
        """End the schemas of a topic, and return the version of the deletion.

        The next schema is not compared with earlier ones.

        Raises:
            NotFound: the topic has no schema.
        """
        return int((await self._submit(SchemaDelete(self._topic(name).state.id))).version)

    async def roll(self, name: str) -> None:
        """Seal the open ledger: the next message begins a new one."""
        topic = self._topic(name)
        ledger = topic.state.ledgers.open_ledger
        if ledger is not None:
            await self._submit(LedgerRoll(topic.state.id, ledger))

    async def trim(self, name: str) -> int:
        """Trim a topic, and return the number of entries deleted."""
        topic = self._topic(name)
        before = topic.first
        await self._submit(trim_event(self._broker, topic))
        return topic.first - before

    async def forget_producer(self, name: str, producer: str) -> None:
        """Forget the last sequence number of a producer's name; the next message counts as new."""
        await self._submit(DeduplicationForget(self._topic(name).state.id, producer))

    def last_id(self, name: str) -> MessageId:
        """Return the id of the last visible message."""
        return self._topic(name).last_id()

    # -- subscriptions ---------------------------------------------------------------------------------

    async def create_subscription(
        self, topic: str, name: str, start: Start = "latest", *, after: bool = False
    ) -> None:
        """Create a durable subscription at a place in its topic; with `after`, behind that message.

        Of a partitioned topic, it is created on all partitions: at their end or at their first message.

        Raises:
            Exists: the topic has a subscription of that name.
            Misuse: the topic has no message of that id, or is partitioned.
        """
        checked_name(name, "a subscription")
        full, partitioned = topic_name(topic), self._broker.partitioned
        if not self._broker.has_topic(full) and await partitioned.metadata(full, create=True):
            if start not in ("earliest", "latest", EARLIEST, LATEST):
                partitioned.require_other(full)
            await partitioned.subscribe(full, name, from_end=start in ("latest", LATEST))
            return
        where = await self._broker.ensure_topic(topic)
        ordinal = await where.place(start, exact=True, after=after)
        await self._broker.create_subscription_at(where, name, ordinal)

    async def delete_subscription(self, topic: str, name: str, force: bool = False) -> None:
        """Delete a subscription; of a partitioned topic, that of all partitions.

        Raises:
            Busy: the subscription has consumers, and `force` was not given.
        """
        if self.partitions(topic):
            await self._broker.partitioned.unsubscribe(topic_name(topic), name, force)
            return
        _, subscription = self._subscription(topic, name)
        await self._submit(SubscriptionDelete(subscription.id, force))

    def subscriptions(self, topic: str) -> list[str]:
        """Return the names of a topic's durable subscriptions, sorted."""
        if self.partitions(topic):
            return self._broker.partitioned.subscriptions(topic_name(topic))
        return sorted(self._topic(topic).state.subscriptions)

    def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return stats of a subscription's cursor and its consumers."""
        return self._subscription_stats(*self._subscription(topic, name))

    async def reset(
        self, topic: str, name: str, to: Start, timeout: float | None = None, *, after: bool = False
    ) -> None:
        """Reset a subscription to another place in its topic; with `after`, behind that message.

        After the call, no message of an earlier read is delivered, and no earlier acknowledgement has an
        effect.

        Raises:
            Misuse: the topic has no message of that id.
            CursorModifying: another reset was under way until the timeout. Nothing was changed.
            Timeout: it is not known whether the reset happened; call again, or look at the stats.
        """
        where, subscription = self._subscription(topic, name)
        dispatcher = self._broker.dispatcher(where, subscription)
        await self._broker.reset(where, dispatcher, to, timeout, exact=True, after=after)

    async def skip(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next `count` entries of the backlog."""
        if count < 1:
            raise Misuse(f"cannot skip {count} entries of {topic}; skip 1 or more")
        where, subscription = self._subscription(topic, name)
        await self._broker.dispatcher(where, subscription).advance(skip=count)

    async def clear(self, topic: str, name: str) -> None:
        """Acknowledge the whole backlog."""
        where, subscription = self._subscription(topic, name)
        await self._broker.dispatcher(where, subscription).advance(to=where.visible)

    async def expire(self, topic: str, name: str, older_than_s: float) -> None:
        """Acknowledge messages that are older."""
        where, subscription = self._subscription(topic, name)
        await self._broker.expire(where, subscription, older_than_s)

    # -- direct reads ----------------------------------------------------------------------------------

    async def peek(self, topic: str, name: str, count: int = 1) -> list[TopicMessage]:
        """Return the next unacknowledged messages of a subscription. Changes nothing."""
        where, subscription = self._subscription(topic, name)
        acks = subscription.acks
        ordinal, found = max(acks.acked_to, where.first), list[TopicMessage]()
        while len(found) < count and (ordinal := acks.next_unacked(ordinal)) < where.visible:
            entries = await where.read_on(ordinal, count - len(found), PEEK_BYTES)
            if entries is None:
                break
            ordinal = entries.first_ordinal
            wanted = [at for at in range(len(entries)) if not acks.is_acked(ordinal + at)]
            found += where.messages(entries, wanted, subscription)
            ordinal += len(entries)
        return found[:count]

    async def examine(self, topic: str, start: Start = "earliest", count: int = 1) -> list[TopicMessage]:
        """Return messages from a place on, acknowledged or not. Changes nothing."""
        where = self._topic(topic)
        ordinal, found = await where.place(start), list[TopicMessage]()
        while len(found) < count:
            entries = await where.read_on(ordinal, count - len(found), PEEK_BYTES)
            if entries is None:
                break
            found += where.messages(entries, range(len(entries)), None)
            ordinal = entries.first_ordinal + len(entries)
        return found[:count]

    async def get(self, topic: str, id: MessageId) -> TopicMessage:  # noqa: A002  # as everywhere
        """Return the message with an id.

        Raises:
            NotFound: the message does not exist, or was trimmed.
        """
        where = self._topic(topic)
        ordinal, found = where.ordinal_of(id), list[TopicMessage]()
        if where.first <= ordinal < where.visible and where.id_of(ordinal) == (id.ledger, id.entry, -1):
            found = where.messages(await where.read(ordinal, 1, PEEK_BYTES), [0], None)
        index = max(id.batch, 0)
        if index >= len(found):
            raise NotFound(f"{where.name} has no message {id}; see `examine` or `topic peek`")
        return found[index]

    async def delivery_time(self, topic: str, id: MessageId) -> datetime | None:  # noqa: A002
        """Return the delivery time of a message; None: none, or beyond the year 9999.

        Subscriptions of the types Shared and Key_Shared get the message then, others at once.

        Raises:
            NotFound: the message does not exist, or was trimmed.
        """
        where = self._topic(topic)
        ordinal = where.ordinal_of(id)
        if ordinal >= where.visible or where.id_of(ordinal) != (id.ledger, id.entry, -1):
            raise NotFound(f"{where.name} has no message {id}; see `examine` or `topic peek`")
        try:
            due_ms = parse_entry((await where.read(ordinal, 1, PEEK_BYTES)).entry(0)).deliver_at_ms
        except Corrupt:  # a client published bytes that are not a message
            return None
        return datetime.fromtimestamp(due_ms / 1000, UTC) if 0 < due_ms < YEAR_10000_MS else None

    async def time_of(self, topic: str, time: datetime | int) -> MessageId:
        """Return the id of the first message from a time on, or the last id."""
        where = self._topic(topic)
        ordinal = await where.place(time)
        return where.id_of(ordinal) if ordinal < where.visible else where.last_id()

    # -- tenants and namespaces ------------------------------------------------------------------------

    def tenants(self) -> dict[str, Tenant]:
        """Return all tenants by name."""
        return dict(sorted(self._broker.machine.state.namespaces.tenants.items()))

    def tenant(self, name: str) -> Tenant | None:
        """Return a tenant, or None if it does not exist."""
        return self._broker.machine.state.namespaces.tenants.get(name)

    async def create_tenant(
        self, name: str, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> None:
        """Create a tenant.

        Raises:
            Exists: there is a tenant of that name.
        """
        await self._submit(TenantCreate(name, list(admin_roles), list(allowed_clusters)))

    async def update_tenant(
        self, name: str, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> None:
        """Replace the admin roles and the clusters of a tenant."""
        await self._submit(TenantUpdate(name, list(admin_roles), list(allowed_clusters)))

    async def delete_tenant(self, name: str, force: bool = False) -> None:
        """Delete a tenant; with `force`, with its namespaces and their topics.

        Raises:
            Busy: the tenant has namespaces, and `force` was not given.
        """
        await self._submit(TenantDelete(name, force))

    def namespaces(self, tenant: str) -> list[str]:
        """Return the namespaces of a tenant, as `tenant/namespace`, sorted.

        Raises:
            NotFound: the tenant does not exist.
        """
        namespaces = self._broker.machine.state.namespaces
        namespaces.require_tenant(tenant)
        return namespaces.of(tenant)

    async def create_namespace(self, name: str, **policies: Any) -> None:
        """Create a namespace, `tenant/namespace`. Its topics inherit its policies.

        Raises:
            Exists: there is a namespace of that name.
            NotFound: the tenant does not exist.
        """
        await self._submit(NamespaceCreate(name, _policies(policies)))

    async def delete_namespace(self, name: str, force: bool = False) -> None:
        """Delete a namespace; with `force`, with its topics.

        Raises:
            Busy: the namespace has topics, and `force` was not given.
        """
        await self._submit(NamespaceDelete(name, force))

    def namespace_policies(self, name: str) -> Policies:
        """Return the policies of a namespace; None: the broker's options apply.

        Raises:
            NotFound: the namespace does not exist.
        """
        return self._broker.machine.state.namespaces.require(name)

    async def set_namespace_policies(self, name: str, **policies: Any) -> None:
        """Change policies of a namespace, as `set_policies` does for a topic."""
        await self._submit(NamespaceUpdate(name, _policies(policies), sorted(policies)))

    def has_namespace(self, name: str) -> bool:
        """Return whether a namespace was created."""
        return name in self._broker.machine.state.namespaces.policies

    def applied_policies(self, name: str) -> Policies:
        """Return the policies that apply to a topic: its own, its namespace's, the broker's."""
        return self._broker.limiting.of(self._topic(name))

    # -- the broker ------------------------------------------------------------------------------------

    async def snapshot(self) -> None:
        """Write a snapshot now, so that the next start has no journal to redo."""
        await self._broker.store.snapshot()

    async def repair_time(self) -> float:
        """Set log time back to this machine's clock; return how many seconds it was ahead.

        Check the clock first: this is the only call that sets log time back, and ages follow log time.
        """
        ahead_s = self._broker.log_time_ahead_s
        if ahead_s > 0:
            await self._submit(TimeRepair(self._broker.clock.now_ns()))
        return ahead_s

    # -- inside ----------------------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic:
        return self._broker.topic(topic_name(name))

    def _subscription(self, topic: str, name: str) -> tuple[Topic, SubscriptionState]:
        where = self._topic(topic)
        return where, where.subscription(name)

    async def _submit(self, event: Any) -> Any:
        return await self._broker.engine.submit(event)

    def _subscription_stats(self, topic: Topic, subscription: SubscriptionState) -> SubscriptionStats:
        dispatcher = topic.dispatcher_of(subscription)
        acks = subscription.acks
        read = acks.acked_to if dispatcher is None else dispatcher.read_position
        return SubscriptionStats(
            name=subscription.name,
            durable=True,
            backlog=topic.backlog(subscription),
            mark_delete=topic.id_text(acks.acked_to - 1),
            read_position=topic.id_text(read),
            individually_acknowledged=acks.holes_count,
            partly_acknowledged=acks.partial_count,
            reset_number=subscription.reset_number,
            under_revision=dispatcher is not None and dispatcher.revision.under_revision,
            dispatch=None if dispatcher is None else dispatcher.stats(),
            owner="" if subscription.owner is None else str(subscription.owner),
            owner_epoch=subscription.owner_epoch,
        )


def _policies(named: dict[str, Any]) -> Policies:
    known = Policies.__struct_fields__
    for name in named:
        if name not in known:
            raise Misuse(f"there is no policy {name!r}; there are: {', '.join(sorted(known))}")
    return msgspec.structs.replace(SILENT, **named)


def _of_topic(named: dict[str, Any]) -> Policies:
    if named.get("topics_max") is not None:
        raise Misuse("topics_max is a policy of namespaces, and has no effect on a topic; set it there")
    return _policies(named)
