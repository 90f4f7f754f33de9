"""Events of partitioned topics: create, add partitions, delete, subscriptions of all partitions.

Each is one event, so all partitions change together or none does.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import create_subscription, delete_subscription, require_creatable
from holdfast.broker.events.maximums import require_subscriptions, require_topics
from holdfast.broker.events.notices import PartitionsChanged
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.topics import add_topic, delete_topic, forget_permissions, require_unused
from holdfast.broker.partitions import (
    PARTITIONS_MAX,
    AutoCreation,
    PartitionedTopic,
    partitions_of,
)
from holdfast.broker.state import SILENT, BrokerState, Policies, TopicState
from holdfast.errors import Busy, Exists, Misuse, NotFound, Terminated
from holdfast.formatting import plural
from holdfast.ids import require_left
from holdfast.names import (
    any_topic_name,
    is_persistent,
    namespace_of,
    no_subscription,
    partition_name,
    partition_of,
)

INCARNATION_BYTES = 16
COPIES_MAX = 100_000
"""Subscriptions that one event adds to new partitions: 10,000 partitions and 1,000 would be ten million."""


@event(15, version=3, base=0)
class PartitionsSet(Event, frozen=True):
    """Create a partitioned topic, or add partitions to it. Its number never becomes smaller.

    A new partition has the policies, the alternate and the subscriptions of partition 0. Each subscription
    begins at its first message, so it misses none (**I284**).
    """

    name: str
    """In full, persistent or not."""
    count: int
    """Number of partitions afterwards."""
    incarnation: bytes
    """16 random bytes from the sender. Those of a partition are derived from them."""
    grow: bool = False
    """Add partitions to a topic that exists."""
    policies: Policies = SILENT
    """Of a topic that is created."""
    managed: bool = False
    """Only in a namespace that was created."""
    topics_max: int = 0
    """The option of the broker, for a namespace without the policy."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    """Of a topic that is created."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        if len(self.incarnation) != INCARNATION_BYTES:
            raise Misuse(f"an incarnation of {len(self.incarnation)} bytes; it has {INCARNATION_BYTES}")
        if not 0 < self.count <= PARTITIONS_MAX:
            raise Misuse(f"{self.name} cannot have {self.count} partitions; use 1 to {PARTITIONS_MAX}")
        if self.grow:
            before, created = self._require_growth(state, context)
            if before == self.count:
                return Done(changed=False)
        else:
            self._require_new(state)
            before, created = 0, context.time
        if is_persistent(self.name):
            require_topics(state, namespace_of(self.name), self.count - before, self.topics_max)
        if is_persistent(self.name):
            self._add(state, context, before)
        state.partitioned.put(self.name, PartitionedTopic(self.count, created))
        state.touch(state.partitioned)
        context.notices.append(PartitionsChanged(self.name, self.count))
        return Done()

    def _require_new(self, state: BrokerState) -> None:
        if any_topic_name(self.name) != self.name:
            raise Misuse(f"{self.name!r} is short for {any_topic_name(self.name)!r}; say it in full")
        self.policies.require_sound()
        if partition_of(self.name) is not None:
            raise Misuse(f"{self.name} is the name of a partition, and cannot have partitions; use another")
        if self.name in state.names:
            what = "exchange" if state.names[self.name] in state.exchanges else "topic without partitions"
            raise Exists(f"the {what} {self.name} exists already; use another name")
        state.unreplicated.require_free(self.name)
        state.partitioned.require_free(self.name)
        if self.managed:
            state.namespaces.require(namespace_of(self.name))
        self._require_names(state, 0)

    def _require_growth(self, state: BrokerState, context: Context) -> tuple[int, int]:
        """Return the number of partitions so far, and when the topic was created."""
        found = state.partitioned.topics.get(self.name)
        if found is None:
            if self.name in state.names:
                raise Misuse(f"{self.name} is not partitioned, and cannot become so; create another topic")
            raise NotFound(f"there is no partitioned topic {self.name}; create it first")
        if self.count < found.count:
            raise Misuse(
                f"{self.name} has {plural(found.count, 'partition')}, and cannot have fewer, "
                f"{self.count}; their messages would be lost"
            )
        if is_persistent(self.name) and partitions_of(state, self.name)[0].terminated:
            raise Terminated(f"{self.name} is terminated; it cannot have more partitions")
        self._require_names(state, found.count)
        return found.count, found.created

    def _require_names(self, state: BrokerState, before: int) -> None:
        """Refuse partitions whose names other topics have."""
        for index in range(before, self.count):
            name = partition_name(self.name, index)
            if name in state.names:
                raise Exists(f"the topic {name} exists already; delete it, or use another name for the whole")
            state.unreplicated.require_free(name)

    def _add(self, state: BrokerState, context: Context, before: int) -> None:
        first = state.topics[state.names[partition_name(self.name, 0)]] if before else None
        copies = 0 if first is None else len(first.subscriptions)
        more = self.count - before
        if copies * more > COPIES_MAX:
            raise Misuse(
                f"{more} more partitions of {self.name} would have {copies * more} subscriptions, "
                f"and one request adds at most {COPIES_MAX}; add fewer partitions at a time"
            )
        require_left(state.next_topic + self.count - before - 1, "ids of topics")
        require_left(state.next_subscription + copies * (self.count - before) - 1, "ids of subscriptions")
        for index in range(before, self.count):
            seed = self.incarnation + index.to_bytes(4, "little")
            incarnation = blake2b(seed, digest_size=INCARNATION_BYTES).digest()
            policies = self.policies if first is None else first.policies
            topic = add_topic(state, context, partition_name(self.name, index), incarnation, policies)
            topic.properties = dict(sorted((self.properties if first is None else first.properties).items()))
            if first is None:
                first = topic
            else:
                _follow(state, first, topic)


def _follow(state: BrokerState, first: TopicState, topic: TopicState) -> None:
    """Give a new partition what partition 0 has: schemas, alternates and subscriptions."""
    topic.schemas = first.schemas
    alternates = state.exchanges.alternates
    if first.id in alternates.topics:
        alternates.topics[topic.id] = alternates.topics[first.id]
        state.touch(alternates)
    for name, model in sorted(first.subscriptions.items()):
        made = create_subscription(state, topic, name, 0, model.properties)
        if model.id in alternates.subscriptions:
            alternates.subscriptions[made.id] = alternates.subscriptions[model.id]
            state.touch(alternates)


def require_partitioned(state: BrokerState, full: str) -> list[TopicState]:
    """Return the partitions of a persistent topic, caught up with the log.

    Raises:
        NotFound: the topic does not exist, or is not partitioned.
        Misuse: the topic is not persistent.
    """
    if not is_persistent(full):
        raise Misuse(f"{full} keeps no message; its subscriptions exist while consumers are attached")
    found = partitions_of(state, full)
    if not found:
        raise NotFound(f"there is no partitioned topic {full}; check its name, or create it")
    for each in found:
        state.refresh(each)
    return found


@event(16, base=0)
class PartitionsDelete(Event, frozen=True):
    """Delete a partitioned topic with all partitions.

    Without `force` only if no partition has a subscription or a producer.
    """

    name: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        if self.name not in state.partitioned.topics:
            raise NotFound(f"there is no partitioned topic {self.name}; check its name")
        partitions = require_partitioned(state, self.name) if is_persistent(self.name) else []
        if not self.force:
            for each in partitions:
                require_unused(each)
        remove_partitioned(state, context, self.name)
        return Done()


def remove_partitioned(state: BrokerState, context: Context, full: str) -> None:
    """Delete a partitioned topic with all partitions."""
    for each in partitions_of(state, full):
        delete_topic(state, context, each)
    state.partitioned.remove(full)
    forget_permissions(state, full)
    state.touch(state.partitioned)
    context.notices.append(PartitionsChanged(full, 0))


@event(17, base=0)
class AutoCreationSet(Event, frozen=True):
    """Set how missing topics of a namespace are created; None: the broker's options decide again."""

    namespace: str
    """`tenant/namespace`."""
    policy: AutoCreation | None = None

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.namespaces.require(self.namespace)
        policies = state.partitioned.auto_creation
        if self.policy is not None:
            self.policy.require_sound()
        if policies.get(self.namespace) == self.policy:
            return Done(changed=False)
        if self.policy is None:
            del policies[self.namespace]
        else:
            policies[self.namespace] = self.policy
        state.touch(state.partitioned)
        return Done()


@event(18, base=0)
class PartitionsSubscribe(Event, frozen=True):
    """Create a subscription on all partitions of a topic."""

    name: str
    """Of the topic, in full."""
    subscription: str
    from_end: bool = True
    """At the end of each partition when this is applied; else at the first message."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    def apply(self, state: BrokerState, context: Context) -> Done:
        partitions = require_partitioned(state, self.name)
        missing = [each for each in partitions if self.subscription not in each.subscriptions]
        if not missing:
            raise Exists(f"{self.name} has a subscription {self.subscription!r} already")
        for each in missing:
            require_creatable(state, each, self.subscription)
            require_subscriptions(state, each)
        require_left(state.next_subscription + len(missing) - 1, "ids of subscriptions")
        for each in missing:
            start = -1 if self.from_end else 0
            create_subscription(state, each, self.subscription, start, self.properties)
        return Done()


@event(19, base=0)
class PartitionsUnsubscribe(Event, frozen=True):
    """Delete a subscription of all partitions. Without `force` only if it has no consumer."""

    name: str
    """Of the topic, in full."""
    subscription: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        partitions = require_partitioned(state, self.name)
        found = [each.subscriptions.get(self.subscription) for each in partitions]
        there = [each for each in found if each is not None]
        if not there:
            known = sorted({name for each in partitions for name in each.subscriptions})
            raise NotFound(no_subscription(self.name, self.subscription, known))
        consumers = sum(len(each.consumers) for each in there)
        if consumers and not self.force:
            count = plural(consumers, "consumer")
            raise Busy(f"the subscription {self.subscription!r} has {count}; close all of them, or force")
        for each in there:
            delete_subscription(state, context, each, "the subscription was deleted")
        return Done()
