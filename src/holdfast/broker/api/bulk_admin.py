"""Administration of many topics or subscriptions with one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.broker.events import Unload
from holdfast.errors import HoldfastError, NotFound
from holdfast.formatting import plural
from holdfast.names import namespace_name, topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.partitions import AutoCreation
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic

AT_ONCE = 100
"""Subscriptions that one call changes at the same time: their changes share a write to the disk."""


class BulkAdmin:
    """The part of `Admin` whose calls change many objects.

    Each call returns when its effect is durable. It changes one object after another: another program can
    see some of them changed and others not yet.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         for topic in ("red", "blue"):
        ...             await broker.admin.create_subscription(topic, "paint")
        ...             async with broker.producer(topic) as p:
        ...                 await p.send(b"wine")
        ...         print(await broker.admin.clear_namespace("public/default"))
        ...         print(broker.admin.subscription_stats("blue", "paint").backlog)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        2
        0
    """

    _broker: Broker

    async def unload(self, topic: str) -> None:
        """Close the clients of a topic at every member; they reconnect."""
        await self._broker.engine.submit(Unload(topic=self._broker.topic(topic_name(topic)).id))

    async def unload_namespace(self, namespace: str) -> None:
        """Close the clients of all topics of a namespace at every member; they reconnect.

        Raises:
            NotFound: there is no such namespace.
        """
        name, local = namespace_name(namespace), self._broker.unreplicated.local
        here = local is not None and any(each.state.namespace == name for each in local.topics.values())
        if local is not None and here:
            await local.engine.submit(Unload(namespace=name))
            if not any(True for _ in self._topics(name, self._broker)):
                return
        await self._broker.engine.submit(Unload(namespace=name))

    async def clear_namespace(self, namespace: str, subscription: str | None = None) -> int:
        """Acknowledge the backlogs of a namespace, or of one subscription of its topics.

        Return the number of subscriptions.

        Raises:
            NotFound: there is no such namespace, or no topic of it has the subscription.
        """
        return await self._each(
            namespace,
            subscription,
            lambda of, topic, each: of.dispatcher(topic, each).advance(to=topic.visible),
        )

    async def unsubscribe_namespace(self, namespace: str, subscription: str) -> int:
        """Delete a subscription from all topics of a namespace; return how many had it.

        Raises:
            Busy: one of them has consumers.
            NotFound: there is no such namespace, or no topic of it has the subscription.
        """
        return await self._each(
            namespace,
            subscription,
            lambda of, topic, each: of.admin.delete_subscription(topic.name, each.name),
        )

    async def expire_all(self, topic: str, older_than_s: float) -> int:
        """Acknowledge older messages for all subscriptions of a topic; return their number."""
        found = self._broker.topic(topic_name(topic))
        return await self._all(
            [(self._broker, found, each) for each in found.subscriptions.values()],
            lambda of, where, each: of.expire(where, each, older_than_s),
        )

    def auto_creation(self, namespace: str) -> AutoCreation | None:
        """Return how missing topics of a namespace are created; None: the options decide."""
        return self._broker.partitioned.namespace_auto_creation(namespace_name(namespace))

    async def set_auto_creation(self, namespace: str, policy: AutoCreation | None) -> None:
        """Set how missing topics of a namespace are created; None: the options decide."""
        await self._broker.partitioned.set_auto_creation(namespace_name(namespace), policy)

    def _topics(self, namespace: str, of: Broker) -> Iterator[Topic]:
        for topic in list(of.topics.values()):
            if topic.state.namespace == namespace and not of.is_deleted(topic):
                yield topic

    async def _each(self, namespace: str, subscription: str | None, work: Work) -> int:
        """Do work for the subscriptions of a namespace, also of this member's unreplicated topics."""
        name, local = namespace_name(namespace), self._broker.unreplicated.local
        brokers = [self._broker] if local is None else [self._broker, local]
        topics = [(of, topic) for of in brokers for topic in self._topics(name, of)]
        if not topics:
            self._broker.machine.state.namespaces.require(name)
        found = [
            (of, topic, each)
            for of, topic in topics
            for each in topic.subscriptions.values()
            if subscription in (None, each.name)
        ]
        if subscription is not None and not found:
            raise NotFound(f"no topic of {name} has a subscription {subscription!r}")
        return await self._all(found, work)

    async def _all(self, found: list[Subject], work: Work) -> int:
        """Do work for each subscription. After a failure the others are done all the same.

        Raises:
            HoldfastError: the first failure; its note has the number of them.
        """
        failed: list[HoldfastError] = []
        left = iter(found)
        while some := list(islice(left, AT_ONCE)):
            for outcome in await asyncio.gather(*(work(*each) for each in some), return_exceptions=True):
                if isinstance(outcome, NotFound):  # deleted meanwhile
                    continue
                if isinstance(outcome, HoldfastError):
                    failed.append(outcome)
                elif isinstance(outcome, BaseException):
                    raise outcome
        if failed:
            first = failed[0]
            words = f"{len(failed)} of {plural(len(found), 'subscription')} failed, the others are done"
            raise type(first)(f"{first}; {words}")
        return len(found)


Subject = tuple["Broker", "Topic", "SubscriptionState"]
Work = Callable[["Broker", "Topic", "SubscriptionState"], Awaitable[object]]
