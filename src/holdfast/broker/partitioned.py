"""The partitioned topics of a broker: create, add partitions, delete, and create what is missing.

Promises upward: the number of partitions is that of the state, the same on every member. A name is of a topic
or of a partitioned topic, never of both. Needs from below: the events of `holdfast.broker.events.partitions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.broker.events import (
    AutoCreationSet,
    PartitionsDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PartitionsUnsubscribe,
)
from holdfast.broker.partitions import AutoCreation
from holdfast.broker.policy import policies_of_new
from holdfast.broker.state import SILENT, Policies
from holdfast.errors import Busy, Exists, Misuse, NotFound
from holdfast.formatting import plural
from holdfast.names import is_persistent, namespace_of, partition_name, partition_of

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import BrokerState


class PartitionedTopics:
    """The partitioned topics of a broker, by full name. `broker.partitioned` is one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         await broker.partitioned.create("persistent://public/default/orders", 2)
        ...         print(broker.partitioned.names("persistent://public/default/orders")[1])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        persistent://public/default/orders-partition-1
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def _state(self) -> BrokerState:
        return self._broker.machine.state

    # -- looking ---------------------------------------------------------------------------------------

    def count(self, full: str) -> int:
        """Return the number of partitions of a topic; 0: it has none."""
        return self._state.partitioned.count(full)

    def names(self, full: str) -> list[str]:
        """Return the names of a topic's partitions; empty: it is not partitioned."""
        return self._state.partitioned.names_of(full)

    def parent(self, full: str) -> tuple[str, int] | None:
        """Return the partitioned topic of a partition, and its index; None: it has none."""
        return self._state.partitioned.parent(full)

    def counts(self) -> dict[str, int]:
        """Return the numbers of partitions by full name, sorted."""
        return {name: found.count for name, found in sorted(self._state.partitioned.topics.items())}

    def non_persistent(self, namespace: str) -> list[str]:
        """Return the partitions of all non-persistent topics of a namespace."""
        found = self._state.partitioned.topics
        whole = (each for each in found if not is_persistent(each) and namespace_of(each) == namespace)
        return [name for each in whole for name in self.names(each)]

    def require_other(self, full: str) -> None:
        """Refuse a partitioned topic where a single topic is needed.

        Raises:
            Misuse: the topic is partitioned; the text names a partition.
        """
        if count := self.count(full):
            first = partition_name(full, 0)
            raise Misuse(f"{full} has {plural(count, 'partition')}; name one of them, such as {first}")

    # -- missing topics --------------------------------------------------------------------------------

    def auto_creation(self, full: str) -> AutoCreation:
        """Return how a missing topic is created: by its namespace's policy, else by the options."""
        found = self._state.partitioned.auto_creation.get(namespace_of(full))
        options = self._broker.decided
        return found or AutoCreation(options.create_topics, options.create_partitions)

    def namespace_auto_creation(self, namespace: str) -> AutoCreation | None:
        """Return a namespace's own policy for missing topics; None: the options decide.

        Raises:
            NotFound: the namespace does not exist.
        """
        self._state.namespaces.require(namespace)
        return self._state.partitioned.auto_creation.get(namespace)

    async def set_auto_creation(self, namespace: str, policy: AutoCreation | None) -> None:
        """Set how missing topics of a namespace are created; None: the options decide.

        Raises:
            NotFound: the namespace does not exist.
        """
        await self._broker.engine.submit(AutoCreationSet(namespace, policy))

    def require_creatable(self, full: str) -> AutoCreation:
        """Return how a missing topic is created.

        A server creates no single partition. A client that reconnects to a deleted one would create a topic
        that is in the way of the partitioned topic. Programs that embed a broker are free in names.

        Raises:
            NotFound: it is not created; the text says why.
        """
        found = partition_of(full)
        if found is not None and (count := self.count(found[0])):
            words = f"{found[0]} has {plural(count, 'partition')}; add partitions to that topic"
            raise NotFound(f"there is no topic {full}: {words}")
        if found is not None and self._broker.decided.require_namespaces:
            words = f"{found[0]} is not partitioned, or was deleted; create it with partitions"
            raise NotFound(f"there is no topic {full}: {words}")
        policy = self.auto_creation(full)
        if not policy.allow:
            raise NotFound(
                f"there is no topic {full}, and clients may not create topics here; create it first"
            )
        return policy

    async def create_missing(self, full: str) -> None:
        """Create a missing topic, partitioned or not, if that is allowed.

        Raises:
            NotFound: it is not created; the text says why.
        """
        if full in self._state.names:  # created elsewhere, and not stable here yet: this is settled after it
            with contextlib.suppress(Exists):
                await self._broker.create_topic(full, Policies())
            return
        policy = self.require_creatable(full)
        with contextlib.suppress(Exists):  # created by another caller meanwhile
            if policy.is_partitioned:
                await self.create(full, policy.partitions)
            else:
                await self._broker.create_topic(full, Policies())

    async def metadata(self, full: str, create: bool) -> int:
        """Return the number of partitions; create a missing topic that gets some.

        0: the topic is not partitioned. It may not exist yet: then a producer or consumer creates it.

        Raises:
            NotFound: the topic does not exist, and is not created.
        """
        if (count := self.count(full)) or self._broker.has_topic(full):
            return count
        self._broker.require_namespace(full)
        if self.parent(full) is not None:  # of a non-persistent topic, whose partitions exist by their number
            return 0
        if not create:
            raise NotFound(f"there is no topic {full}; create it first")
        if self.require_creatable(full).is_partitioned:
            await self.create_missing(full)
        return self.count(full)

    # -- changing --------------------------------------------------------------------------------------

    async def create(
        self,
        full: str,
        count: int,
        policies: Policies = SILENT,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a partitioned topic with all its partitions.

        Raises:
            Exists: a topic has the name, or that of a partition.
            Misuse: the number of partitions, or the name, is not possible.
        """
        policies = policies_of_new(self._broker, full, policies)
        token, managed = self._broker.random.token(16), self._broker.decided.require_namespaces
        most, kept = self._broker.decided.topics_max, dict(properties or {})
        if kept and not is_persistent(full):
            raise Misuse(f"{full} keeps nothing, and has no properties; leave them out")
        event = PartitionsSet(
            full, count, token, policies=policies, managed=managed, topics_max=most, properties=kept
        )
        await self._broker.engine.submit(event)

    async def grow(self, full: str, count: int) -> None:
        """Add partitions, so that a topic has `count`. They get the subscriptions of partition 0.

        Raises:
            NotFound: there is no partitioned topic of the name.
            Misuse: the topic has more partitions already, or is not partitioned.
        """
        token, most = self._broker.random.token(16), self._broker.decided.topics_max
        await self._broker.engine.submit(PartitionsSet(full, count, token, grow=True, topics_max=most))

    async def delete(self, full: str, force: bool = False) -> None:
        """Delete a partitioned topic with all partitions.

        Raises:
            NotFound: there is no partitioned topic of the name.
            Busy: a partition has producers, subscriptions or readers, and `force` was not given.
        """
        if not force:
            topics, names = self._broker.topics, self._state.names
            for name in self.names(full):
                topic = topics.get(names.get(name, 0))
                if topic is not None and topic.readers:
                    raise Busy(f"{name} has {plural(topic.readers, 'reader')}; close all of them, or force")
        await self._broker.engine.submit(PartitionsDelete(full, force))

    async def subscribe(
        self, full: str, name: str, from_end: bool = True, properties: dict[str, str] | None = None
    ) -> None:
        """Create a subscription on all partitions that lack it, at their end or first message.

        Raises:
            Exists: all partitions have the subscription.
        """
        await self._broker.engine.submit(PartitionsSubscribe(full, name, from_end, properties or {}))

    async def unsubscribe(self, full: str, name: str, force: bool = False) -> None:
        """Delete a subscription of all partitions.

        Raises:
            NotFound: no partition has the subscription.
            Busy: it has consumers, and `force` was not given.
        """
        await self._broker.engine.submit(PartitionsUnsubscribe(full, name, force))

    def subscriptions(self, full: str) -> list[str]:
        """Return the names of all subscriptions that a partition has, sorted."""
        state = self._state
        there = (state.topics[state.names[name]] for name in self.names(full))
        return sorted({name for topic in there for name in topic.subscriptions})
