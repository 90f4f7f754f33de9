"""Limit the durable state that clients may create: topics, subscriptions, schemas and the like.

Promises upward: an event that would exceed a limit is refused before it exists, whichever front end a client
uses. The error names the setting. Needs from below: an engine that asks here before it accepts an event
(`Engine.guard`), and the broker's state.

Limits are not part of the state: a member with other limits applies the same events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.broker.events import (
    Event,
    NamespaceCreate,
    SchemaAdd,
    SinkCommit,
    StageOpen,
    SubscriptionCreate,
    SubscriptionGone,
    TenantCreate,
    TenantUpdate,
    TopicAdded,
    TopicCreate,
    TopicGone,
)
from holdfast.errors import LimitReached
from holdfast.names import NAME_BYTES_MAX

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
GAUGES_MAX = 1000
"""Gauges of single topics that are kept; those with something on its way are kept in any case."""


class Gauge:
    """Count one kind of state: what exists, and what is on its way."""

    def __init__(
        self,
        limits: StateLimits,
        setting: str,
        count: Callable[[], int],
        is_counted: Callable[[Any], bool],
        what: str = "",
    ) -> None:
        self._setting = setting
        self._limit: int = getattr(limits, setting)
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
        if not self._coming or self._there + self._coming + size > self._limit:
            self._recount()
        if self._there + self._coming + size > self._limit:
            raise LimitReached(
                f"there are {self._there + self._coming} {self._what}, and {size} more exceed the limit of "
                f"{self._limit} (limits.{self._setting})"
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
        self._limits = limits
        state = broker.machine.state
        self._topics = Gauge(limits, "topics", lambda: len(state.topics), lambda name: name in state.names)
        self._subscriptions = Gauge(
            limits,
            "subscriptions",
            lambda: len(state.subscriptions),
            lambda name: name[0] in state.topics and name[1] in state.topics[name[0]].subscriptions,
        )
        self._namespaces = Gauge(
            limits,
            "namespaces",
            lambda: len(state.namespaces.tenants) + len(state.namespaces.policies),
            lambda name: name in state.namespaces.tenants or name in state.namespaces.policies,
            "tenants and namespaces",
        )
        self._stages = Gauge(limits, "stages", lambda: len(state.stages), lambda name: name in state.stages)
        self._sinks = Gauge(
            limits, "sinks", lambda: len(state.sinks.last), lambda key: key in state.sinks.last
        )
        self._metadata = Gauge(
            limits,
            "metadata_bytes",
            lambda: self.metadata_bytes,
            lambda _: False,  # counted when it is stable, and its future is done in the same step
            "bytes of names, properties and schemas",
        )
        self.metadata_bytes = 0
        """Bytes of names, properties and schemas of all topics and subscriptions."""
        self._per_topic: dict[tuple[str, int], Gauge] = {}
        """By setting and topic, for topics that exist."""
        self._of_topics: dict[int, int] = {}
        self._of_subscriptions: dict[int, int] = {}
        self._guards: dict[type[Event], Callable[[Any], Told | None]] = {
            TopicCreate: self._topic,
            SubscriptionCreate: self._subscription,
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
        self._broker.quota = self
        self._broker.engine.guard = self._guard

    def stop(self) -> None:
        self._broker.engine.guard = None
        self._broker.quota = None

    # -- before an event -------------------------------------------------------------------------------

    def _guard(self, event: Event) -> Told | None:
        guard = self._guards.get(type(event))
        return None if guard is None else guard(event)

    def _topic(self, event: TopicCreate) -> Told | None:
        if event.name in self._broker.machine.state.names:
            return None  # the event will be refused
        size = len(event.name.encode())
        return all_of(lambda: self._topics.take(event.name), lambda: self._metadata.take(event.name, size))

    def _subscription(self, event: SubscriptionCreate) -> Told | None:
        topic = self._broker.machine.state.topics.get(event.topic)
        if topic is None or event.name in topic.subscriptions:
            return None
        size = properties_size(event.properties)
        require_size(size, self._limits.properties_bytes, "subscription properties", "properties_bytes")
        name, whole = (event.topic, event.name), size + len(event.name.encode())
        return all_of(
            lambda: self._of_topic(topic, "subscriptions_per_topic", topic.subscriptions).take(name),
            lambda: self._subscriptions.take(name),
            lambda: self._metadata.take(name, whole),
        )

    def _schema(self, event: SchemaAdd) -> Told | None:
        topic = self._broker.machine.state.topics.get(event.topic)
        if topic is None:
            return None
        require_size(len(event.schema), self._limits.schema_bytes, "a schema", "schema_bytes")
        if event.schema in topic.schemas:
            return None
        name = (event.topic, event.schema)
        return all_of(
            lambda: self._of_topic(topic, "schemas_per_topic", topic.schemas).take(name),
            lambda: self._metadata.take(name, len(event.schema)),
        )

    def _of_topic(self, topic: TopicState, setting: str, there: Collection[Any]) -> Gauge:
        """Return the gauge of a topic. Idle gauges are dropped: there can be many topics."""
        gauge = self._per_topic.get((setting, topic.id))
        if gauge is None:
            if len(self._per_topic) >= GAUGES_MAX:
                self._per_topic = {key: each for key, each in self._per_topic.items() if not each.resting}
            what = f"{setting.removesuffix('_per_topic')} of {topic.name}"
            gauge = Gauge(self._limits, setting, lambda: len(there), lambda name: name[1] in there, what)
            self._per_topic[setting, topic.id] = gauge
        return gauge

    def _tenant(self, event: TenantCreate) -> Told:
        self._roles(event)
        return self._namespaces.take(event.name)

    def _roles(self, event: TenantCreate | TenantUpdate) -> None:
        size = texts_size(event.admin_roles) + texts_size(event.allowed_clusters)
        require_size(size, self._limits.properties_bytes, f"roles of {event.name}", "properties_bytes")

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
                self._note_topic(state.topics[event.topic])
            elif isinstance(event, SubscriptionCreate) and event.topic in state.topics:
                found = state.topics[event.topic].subscriptions.get(event.name)
                if found is not None:
                    self._note_subscription(found)
        for notice in applied.notices:
            if isinstance(notice, TopicAdded) and notice.topic.id in state.topics:
                self._note_topic(notice.topic)
            elif isinstance(notice, TopicGone):
                self.metadata_bytes -= self._of_topics.pop(notice.topic.id, 0)
                for setting in _SETTINGS_PER_TOPIC:  # a gauge holds what it counts
                    self._per_topic.pop((setting, notice.topic.id), None)
            elif isinstance(notice, SubscriptionGone):
                self.metadata_bytes -= self._of_subscriptions.pop(notice.subscription.id, 0)

    def _note_topic(self, topic: TopicState) -> None:
        size = len(topic.name.encode()) + sum(map(len, topic.schemas))
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
