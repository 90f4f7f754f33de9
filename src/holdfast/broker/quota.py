"""Limit the durable state that clients may create: topics, subscriptions, schemas and the like.

Promises upward: an event that would exceed a limit is refused before it exists, whichever front end a client
uses. The error names the setting. Needs from below: an engine that asks here before it accepts an event
(`Engine.guard`), and the broker's state.

Limits are checked before an event exists, not when it is applied. In a cluster they are options that all
members share (`holdfast.broker.membership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker.events import (
    Event,
    ExchangeAdded,
    ExchangeCreate,
    ExchangeGone,
    NamespaceCreate,
    NamespaceDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PermissionSet,
    PropertiesSet,
    SchemaAdd,
    SinkCommit,
    StageOpen,
    SubscriptionCreate,
    SubscriptionGone,
    SubscriptionRolesSet,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
    TopicAdded,
    TopicCreate,
    TopicGone,
)
from holdfast.broker.membership import LIMITS
from holdfast.broker.partitions import PARTITIONS_MAX, partitions_of, schema_holder
from holdfast.errors import LimitReached
from holdfast.names import NAME_BYTES_MAX, is_persistent, partition_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.machine import Applied
    from holdfast.broker.state import SubscriptionState, TopicState


class StateLimits(Protocol):
    """The settings `limits.*` that this module enforces, by the names of the settings file."""

    @property
    def topics(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def subscriptions_per_topic(self) -> int: ...
    @property
    def schemas_per_topic(self) -> int: ...
    @property
    def schema_bytes(self) -> int: ...
    @property
    def properties_bytes(self) -> int: ...
    @property
    def namespaces(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def sinks(self) -> int: ...
    @property
    def metadata_bytes(self) -> int: ...


Told = Callable[["asyncio.Future[Any]"], None]

_SETTINGS_PER_TOPIC = ("subscriptions_per_topic", "schemas_per_topic")
_OF_NAMESPACES = (PermissionSet, SubscriptionRolesSet, PropertiesSet, NamespaceDelete, TenantDelete)
"""Events that change permissions, or properties of namespaces."""
GAUGES_MAX = 1000
"""Gauges of single topics that are kept; those with something on its way are kept in any case."""


class Gauge:
    """Count one kind of state: what exists, and what is on its way."""

    def __init__(
        self,
        limit: Callable[[], int],
        setting: str,
        count: Callable[[], int],
        is_counted: Callable[[Any], bool],
        what: str = "",
    ) -> None:
        self._setting = setting
        self._limit = limit
        self._what = what or setting
        self._count = count
        self._is_counted = is_counted
        """Whether an event under a name was applied, so that `count` includes it."""
        self._there = 0
        self._coming = 0
        self._names: dict[Hashable, int] = {}
        """Sizes on their way, by name. Clients often create the same object at once; it counts once."""

    def take(self, name: Hashable, size: int = 1) -> Told:
        """Count `size` more as on its way. The returned function takes the outcome.

        Raises:
            LimitReached: the limit would be exceeded.
        """
        if name in self._names:
            return lambda done: None
        limit = self._limit()
        if not self._coming or self._there + self._coming + size > limit:
            self._recount()
        if self._there + self._coming + size > limit:
            raise LimitReached(
                f"there are {self._there + self._coming} {self._what}, and {size} more exceed the limit of "
                f"{limit} (limits.{self._setting})"
            )
        self._coming += size
        self._names[name] = size

        def told(done: asyncio.Future[Any]) -> None:
            self._coming -= size
            self._names.pop(name, None)
            if not done.cancelled() and done.exception() is None:
                self._there += size

        return told

    def _recount(self) -> None:
        """Count again what exists: on a busy server something is always on its way."""
        applied = sum(size for name, size in self._names.items() if self._is_counted(name))
        self._there = self._count() - applied

    @property
    def resting(self) -> bool:
        """Whether nothing is on its way."""
        return not self._coming


class Quota:
    """The limits of a broker. They apply from `start` on."""

    def __init__(self, broker: Broker, limits: StateLimits) -> None:
        self._broker = broker
        self._own = limits
        state = broker.machine.state
        self._topics = self._gauge(
            "topics",
            lambda: len(state.topics) + state.partitioned.passing,
            lambda name: name in state.names or state.partitioned.parent(name) is not None,
        )
        self._subscriptions = self._gauge(
            "subscriptions",
            lambda: len(state.subscriptions),
            self._is_there,
        )
        self._namespaces = self._gauge(
            "namespaces",
            lambda: len(state.namespaces.tenants) + len(state.namespaces.policies),
            lambda name: name in state.namespaces.tenants or name in state.namespaces.policies,
            "tenants and namespaces",
        )
        self._stages = self._gauge("stages", lambda: len(state.stages), lambda name: name in state.stages)
        self._sinks = self._gauge("sinks", lambda: len(state.sinks.last), lambda key: key in state.sinks.last)
        self._metadata = self._gauge(
            "metadata_bytes",
            lambda: self.metadata_bytes,
            lambda _: False,  # counted when it is stable, and its future is done in the same step
            "bytes of names, properties and schemas",
        )
        self.metadata_bytes = 0
        """Bytes of names, properties and schemas of all topics and subscriptions."""
        self._per_topic: dict[tuple[str, int], Gauge] = {}
        """By setting and topic, for topics that exist."""
        self._coming: dict[tuple[int | str, ...], list[dict[str, str]]] = {}
        """Properties on their way: requests at once add to each other."""
        self._of_all_namespaces = 0
        """Bytes of permissions, and of properties of namespaces."""
        self._of_topics: dict[int, int] = {}
        self._of_subscriptions: dict[int, int] = {}
        self._guards: dict[type[Event], Callable[[Any], Told | None]] = {
            TopicCreate: self._created,
            PropertiesSet: self._properties,
            PermissionSet: self._permission,
            SubscriptionRolesSet: self._subscription_roles,
            ExchangeCreate: self._topic,
            SubscriptionCreate: self._subscription,
            PartitionsSet: self._partitions,
            PartitionsSubscribe: self._all_partitions,
            SchemaAdd: self._schema,
            NamespaceCreate: lambda event: self._namespaces.take(event.name),
            TenantCreate: self._tenant,
            TenantUpdate: self._roles,
            StageOpen: self._stage,
            SinkCommit: self._sink,
        }

    def start(self) -> None:
        state = self._broker.machine.state
        for topic in state.topics.values():
            self._note_topic(topic)
        for subscription in state.subscriptions.values():
            self._note_subscription(subscription)
        self._note_namespaces()
        self._broker.quota = self
        self._broker.engine.guard = self._guard
        self._broker.membership.tend()

    def stop(self) -> None:
        self._broker.engine.guard = None
        self._broker.quota = None

    def configured(self) -> dict[str, int]:
        """Return the limits of this broker's configuration by name."""
        return {name: int(getattr(self._own, name)) for name in LIMITS}

    def _limit(self, setting: str) -> int:
        return self._broker.membership.limit(setting, int(getattr(self._own, setting)))

    def _gauge(
        self, setting: str, count: Callable[[], int], is_counted: Callable[[Any], bool], what: str = ""
    ) -> Gauge:
        return Gauge(lambda: self._limit(setting), setting, count, is_counted, what)

    # -- before an event -------------------------------------------------------------------------------

    def _guard(self, event: Event) -> Told | None:
        guard = self._guards.get(type(event))
        return None if guard is None else guard(event)

    def _topic(self, event: TopicCreate | ExchangeCreate, properties: int = 0) -> Told | None:
        if event.name in self._broker.machine.state.names:
            return None  # the event will be refused
        size = len(event.name.encode()) + properties
        return all_of(lambda: self._topics.take(event.name), lambda: self._metadata.take(event.name, size))

    def _created(self, event: TopicCreate) -> Told | None:
        size = properties_size(event.properties)
        require_size(size, self._limit("properties_bytes"), "topic properties", "properties_bytes")
        return self._topic(event, size)

    def _subscription(self, event: SubscriptionCreate) -> Told | None:
        topic = self._broker.machine.state.topics.get(event.topic)
        if topic is None or event.name in topic.subscriptions:
            return None
        size = properties_size(event.properties)
        require_size(size, self._limit("properties_bytes"), "subscription properties", "properties_bytes")
        name, whole = (event.topic, event.name), size + len(event.name.encode())
        return all_of(
            lambda: self._of_topic(topic, "subscriptions_per_topic", topic.subscriptions).take(name),
            lambda: self._subscriptions.take(name),
            lambda: self._metadata.take(name, whole),
        )

    def _is_there(self, name: tuple[int | str, str]) -> bool:
        """Return whether a topic (by id or name) has a subscription."""
        state = self._broker.machine.state
        of = name[0] if isinstance(name[0], int) else state.names.get(name[0], 0)
        return of in state.topics and name[1] in state.topics[of].subscriptions

    def _partitions(self, event: PartitionsSet) -> Told | None:
        state = self._broker.machine.state
        before = state.partitioned.count(event.name)
        if not before < event.count <= PARTITIONS_MAX:
            return None  # the event will be refused
        own = properties_size(event.properties)
        require_size(own, self._limit("properties_bytes"), "topic properties", "properties_bytes")
        more, last = event.count - before, partition_name(event.name, event.count - 1)
        if not is_persistent(event.name):  # its partitions are a number, and each is listed by name
            return self._topics.take(last, more)
        first = state.topics.get(state.names.get(partition_name(event.name, 0), 0))
        copied = [] if first is None else list(first.subscriptions.values())
        copies = sum(len(each.name.encode()) + properties_size(each.properties) for each in copied)
        copies += own if first is None else properties_size(first.properties)
        takes = [
            lambda: self._topics.take(last, more),
            lambda: self._metadata.take(last, more * (len(last.encode()) + copies)),
        ]
        if copied:
            takes.append(lambda: self._subscriptions.take((last, copied[0].name), more * len(copied)))
        return all_of(*takes)

    def _all_partitions(self, event: PartitionsSubscribe) -> Told | None:
        state, name = self._broker.machine.state, event.subscription
        partitions = partitions_of(state, event.name)
        missing = [each for each in partitions if name not in each.subscriptions]
        if not missing:
            return None
        size = properties_size(event.properties)
        require_size(size, self._limit("properties_bytes"), "subscription properties", "properties_bytes")
        key, whole = (missing[-1].name, name), (size + len(name.encode())) * len(missing)
        full = max(missing, key=lambda each: len(each.subscriptions))
        return all_of(
            lambda: self._of_topic(full, "subscriptions_per_topic", full.subscriptions).take((full.id, name)),
            lambda: self._subscriptions.take(key, len(missing)),
            lambda: self._metadata.take(key, whole),
        )

    def _schema(self, event: SchemaAdd) -> Told | None:
        topic = self._broker.machine.state.topics.get(event.topic)
        if topic is None:
            return None
        require_size(len(event.schema), self._limit("schema_bytes"), "a schema", "schema_bytes")
        if event.schema in topic.schemas:
            return None
        name = (event.topic, event.schema)
        return all_of(
            lambda: self._of_topic(topic, "schemas_per_topic", topic.schemas).take(name),
            lambda: self._metadata.take(name, len(event.schema)),
        )

    def _properties(self, event: PropertiesSet) -> Told | None:
        """Limit properties; those that are replaced count until the new ones are there."""
        if not event.values:  # what is only removed needs no room
            return None
        state = self._broker.machine.state
        of: list[TopicState | SubscriptionState] = []
        of += [state.topics[each] for each in event.topics if each in state.topics]
        of += [state.subscriptions[each] for each in event.subscriptions if each in state.subscriptions]
        known = [each.properties for each in of]
        if event.namespace:
            known.append(state.namespaces.properties.get(event.namespace, {}))
        of_what: tuple[int | str, ...] = (*event.topics, *event.subscriptions, event.namespace)
        coming = self._coming.get(of_what, [])
        before = {} if event.replace else {name: each[name] for each in coming for name in each}
        for each in known:
            size = properties_size({**({} if event.replace else each), **before, **event.values})
            require_size(size, self._limit("properties_bytes"), "properties", "properties_bytes")
        more = properties_size(event.values) * max(1, len(known))
        counted = self._metadata.take(("properties", *of_what, object()), more)  # each, not one for all
        self._coming[of_what] = [*coming, event.values]

        def told(done: asyncio.Future[Any]) -> None:
            counted(done)
            left = [each for each in self._coming.pop(of_what) if each is not event.values]
            if left:
                self._coming[of_what] = left

        return told

    def _permission(self, event: PermissionSet) -> Told | None:
        return self._rights(event.place, event.role, event.actions)

    def _subscription_roles(self, event: SubscriptionRolesSet) -> Told | None:
        return self._rights(event.namespace, event.subscription, [] if event.gone else event.roles)

    def _rights(self, place: str, name: str, given: list[str]) -> Told | None:
        if not given:  # a grant must always be revocable
            return None
        size = len(place.encode()) + len(name.encode()) + texts_size(given)
        require_size(size, self._limit("properties_bytes"), f"permissions of {name}", "properties_bytes")
        return self._metadata.take(("permissions", place, name), size)

    def _of_topic(self, topic: TopicState, setting: str, there: Collection[Any]) -> Gauge:
        """Return the gauge of a topic. Idle gauges are dropped: there can be many topics."""
        gauge = self._per_topic.get((setting, topic.id))
        if gauge is None:
            if len(self._per_topic) >= GAUGES_MAX:
                self._per_topic = {key: each for key, each in self._per_topic.items() if not each.resting}
            what = f"{setting.removesuffix('_per_topic')} of {topic.name}"
            gauge = self._gauge(setting, lambda: len(there), lambda name: name[1] in there, what)
            self._per_topic[setting, topic.id] = gauge
        return gauge

    def _tenant(self, event: TenantCreate) -> Told:
        self._roles(event)
        return self._namespaces.take(event.name)

    def _roles(self, event: TenantCreate | TenantUpdate) -> None:
        size = texts_size(event.admin_roles) + texts_size(event.allowed_clusters)
        require_size(size, self._limit("properties_bytes"), f"roles of {event.name}", "properties_bytes")

    def _stage(self, event: StageOpen) -> Told | None:
        return None if event.stage in self._broker.machine.state.stages else self._stages.take(event.stage)

    def _sink(self, event: SinkCommit) -> Told | None:
        require_size(len(event.key.encode()), NAME_BYTES_MAX, "a sink's key", "")
        return None if event.key in self._broker.machine.state.sinks.last else self._sinks.take(event.key)

    # -- after an event --------------------------------------------------------------------------------

    def settled(self, applied: Applied) -> None:
        state = self._broker.machine.state
        for event in applied.events:
            if isinstance(event, SchemaAdd) and event.topic in state.topics:
                self._note_topic(schema_holder(state, state.topics[event.topic]))
            elif isinstance(event, PartitionsSubscribe):
                for topic in partitions_of(state, event.name):
                    if event.subscription in topic.subscriptions:
                        self._note_subscription(topic.subscriptions[event.subscription])
            elif isinstance(event, PropertiesSet):
                for topic_id in event.topics:
                    if topic_id in state.topics:
                        self._note_topic(state.topics[topic_id])
                for number in event.subscriptions:
                    if number in state.subscriptions:
                        self._note_subscription(state.subscriptions[number])
            elif isinstance(event, SubscriptionCreate) and event.topic in state.topics:
                found = state.topics[event.topic].subscriptions.get(event.name)
                if found is not None:
                    self._note_subscription(found)
        if any(isinstance(event, _OF_NAMESPACES) for event in applied.events):
            self._note_namespaces()
        for notice in applied.notices:
            if isinstance(notice, TopicAdded | ExchangeAdded) and notice.topic.id in state.topics:
                self._note_topic(notice.topic)
                for subscription in notice.topic.subscriptions.values():  # copies of partition 0's
                    self._note_subscription(subscription)
            elif isinstance(notice, TopicGone | ExchangeGone):
                self.metadata_bytes -= self._of_topics.pop(notice.topic.id, 0)
                for setting in _SETTINGS_PER_TOPIC:  # a gauge holds what it counts
                    self._per_topic.pop((setting, notice.topic.id), None)
            elif isinstance(notice, SubscriptionGone):
                self.metadata_bytes -= self._of_subscriptions.pop(notice.subscription.id, 0)

    def _note_namespaces(self) -> None:
        state = self._broker.machine.state
        size = sum(state.permissions.sizes()) + sum(
            map(properties_size, state.namespaces.properties.values())
        )
        self.metadata_bytes += size - self._of_all_namespaces
        self._of_all_namespaces = size

    def _note_topic(self, topic: TopicState) -> None:
        own = schema_holder(self._broker.machine.state, topic) is topic  # partitions share their schemas
        size = len(topic.name.encode()) + (sum(map(len, topic.schemas)) if own else 0)
        size += properties_size(topic.properties)
        self.metadata_bytes += size - self._of_topics.get(topic.id, 0)
        self._of_topics[topic.id] = size

    def _note_subscription(self, subscription: SubscriptionState) -> None:
        size = len(subscription.name.encode()) + properties_size(subscription.properties)
        self.metadata_bytes += size - self._of_subscriptions.get(subscription.id, 0)
        self._of_subscriptions[subscription.id] = size


def all_of(*takes: Callable[[], Told]) -> Told:
    """Take from each gauge; if one refuses, give back what was taken before."""
    taken: list[Told] = []

    def told(done: asyncio.Future[Any]) -> None:
        for each in taken:
            each(done)

    try:
        for take in takes:
            taken.append(take())
    except LimitReached as error:
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        failed.exception()
        told(failed)
        raise
    return told


def properties_size(properties: dict[str, str]) -> int:
    """Return the bytes of names and values.

    Example:
        >>> properties_size({"a": "é"})
        3
    """
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())


def texts_size(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def require_size(size: int, limit: int, what: str, setting: str) -> None:
    """Raise LimitReached for an object that is too large by itself."""
    if size > limit:
        where = f" (limits.{setting})" if setting else ""
        raise LimitReached(f"{what}: {size} bytes; at most {limit} are possible{where}")
