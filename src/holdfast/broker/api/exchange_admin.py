"""Administration of exchanges, bindings and alternates; and of what moves messages out of backlogs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from holdfast._core import TopicMessage
from holdfast.broker.api.moving import Mover
from holdfast.broker.events import (
    ALTERNATE,
    AlternateSet,
    Bind,
    ExchangeCreate,
    ExchangeDelete,
    SubscriptionDelete,
    TopicDelete,
    TopicTruncate,
    Trimmed,
    Unbind,
)
from holdfast.broker.telemetry.stats import ExchangeStats
from holdfast.broker.topic_policies import SILENT
from holdfast.errors import Busy, Misuse, NotFound
from holdfast.ids import MessageId
from holdfast.names import namespace_of, topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic

DRAINS = 3
"""Rounds in which `to_alternate` moves messages that arrive meanwhile, before it gives up."""


class ExchangeAdmin:
    """The part of `Admin` about exchanges and moves.

    Each call returns when its effect is durable.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         admin = broker.admin
        ...         await admin.create_subscription("red", "paint")
        ...         await admin.create_exchange("colours", "direct")
        ...         await admin.bind("colours", "red", "r")
        ...         async with broker.producer("colours") as p:
        ...             await p.send(b"wine", key="r")
        ...             await p.send(b"sky", key="b")
        ...         print((await admin.take("red", "paint")).data, admin.exchange_stats("colours").dropped)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        b'wine' 1
    """

    _broker: Broker

    # -- exchanges -------------------------------------------------------------------------------------

    async def create_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        alternate: str | None = None,
        unreplicated: bool = False,
        deduplication: bool | None = None,
    ) -> None:
        """Create an exchange: `direct`, `fanout` or `topic`.

        With `unreplicated`, this member of a cluster alone has it, in a log of its own.

        Raises:
            Exists: there is an exchange or a topic of that name.
            NotFound: the alternate exchange does not exist.
            Misuse: it would be unreplicated, and this broker is alone.
        """
        broker = self._broker
        if unreplicated and not broker.unreplicated.is_local:
            more = {"alternate": alternate, "deduplication": deduplication}
            await broker.unreplicated.create_exchange(name, kind, **more)
            return
        full, options = topic_name(name), broker.decided
        above = broker.machine.state.namespaces.policies.get(namespace_of(full), SILENT)
        if options.deduplication and deduplication is above.deduplication is None:
            deduplication = True
        event = ExchangeCreate(
            full,
            broker.random.token(16),
            kind,
            0 if alternate is None else self._exchange(alternate).id,
            unreplicated,
            deduplication,
            options.require_namespaces,
        )
        await broker.engine.submit(event)

    async def delete_exchange(self, name: str, force: bool = False) -> None:
        """Delete an exchange with its bindings.

        Raises:
            Busy: it has producers, or is an alternate, and `force` was not given.
        """
        await self._broker.engine.submit(ExchangeDelete(self._exchange(name).id, force))

    def exchanges(self) -> list[str]:
        """Return the names of all exchanges, sorted."""
        return sorted(each.name for each in self._broker.exchanges.values())

    def exchange_stats(self, name: str) -> ExchangeStats:
        """Return kind, bindings and counts of an exchange."""
        topic, state = self._exchange(name), self._broker.machine.state
        exchange = state.exchanges.require(topic.id)
        count = exchange.count
        return ExchangeStats(
            name=topic.name,
            kind=exchange.kind,
            alternate=self._name_of(exchange.alternate),
            unreplicated=exchange.unreplicated,
            producers=sorted(each.name for each in topic.producers.values()),
            bindings=[(state.topics[to].name, key) for to, key in exchange.binding_pairs()],
            published=count.published,
            routed=count.routed,
            to_alternate=count.alternate,
            dropped=count.dropped,
            appended=count.appended,
        )

    async def bind(self, exchange: str, topic: str, key: str = "") -> bool:
        """Bind a topic to an exchange by a key or pattern.

        Returns False if it was bound so before.

        Raises:
            NotFound: the exchange or the topic does not exist.
            Misuse: one is replicated, and the other is not.
        """
        source = self._exchange(exchange)
        self._broker.unreplicated.require_bindable(source.name, topic_name(topic))
        event = Bind(source.id, self._broker.topic(topic_name(topic)).id, key)
        return bool((await self._broker.engine.submit(event)).changed)

    async def unbind(self, exchange: str, topic: str, key: str | None = None) -> None:
        """Remove a binding; without a key all bindings of the topic.

        Raises:
            NotFound: there is no such binding.
        """
        event = Unbind(self._exchange(exchange).id, self._broker.topic(topic_name(topic)).id, key)
        await self._broker.engine.submit(event)

    # -- alternates ------------------------------------------------------------------------------------

    async def set_alternate(self, name: str, exchange: str | None, subscription: str | None = None) -> None:
        """Set the alternate of an exchange, a topic or a subscription; None removes it."""
        to = 0 if exchange is None else self._exchange(exchange).id
        if subscription is not None:
            of = self._broker.topic(topic_name(name)).subscription(subscription).id
            event = AlternateSet(to, subscription=of)
        else:
            event = AlternateSet(to, topic=self._destination(name).id)
        await self._broker.engine.submit(event)

    def alternate(self, name: str, subscription: str | None = None) -> str | None:
        """Return the alternate exchange of an exchange or a topic, or a subscription's own."""
        state = self._broker.machine.state
        if subscription is not None:
            of = self._broker.topic(topic_name(name)).subscription(subscription).id
            return self._name_of(state.exchanges.alternates.subscriptions.get(of, 0))
        id = self._destination(name).id  # noqa: A001
        exchange = state.exchanges.all.get(id)
        return self._name_of(
            state.exchanges.alternates.topics.get(id, 0) if exchange is None else exchange.alternate
        )

    def dropped(self, name: str) -> int:
        """Return how many entries a ring or last-value topic has dropped from backlogs."""
        return self._broker.machine.state.dropped(self._broker.topic(topic_name(name)).id)

    # -- moves -----------------------------------------------------------------------------------------

    async def purge(self, name: str) -> int:
        """Drop all messages of a topic for all subscriptions; return the number of entries."""
        topic = self._broker.topic(topic_name(name))
        trimmed: Trimmed = await self._broker.engine.submit(TopicTruncate(topic.id))
        return trimmed.entries

    async def move(self, topic: str, subscription: str, to: str, count: int | None = None) -> int:
        """Move entries of a backlog to a topic or an exchange.

        Returns the number of entries. An entry is appended there and acknowledged here in one step. Entries
        that consumers hold stay. Without a count, all that are visible now are moved.

        Raises:
            Unsupported: some messages of a batch are acknowledged, and the others cannot be read.
        """
        if count is not None and count < 1:
            raise Misuse(f"cannot move {count} entries of {topic}; move 1 or more")
        where, of = self._of(topic, subscription)
        return await Mover(self._broker).move(where, [of], self._destination(to).id, count or sys.maxsize)

    async def take(self, topic: str, subscription: str) -> TopicMessage | None:
        """Acknowledge and return the next message that no consumer holds.

        Returns None if no message can be taken. The message is acknowledged when this returns. A caller that
        dies before it uses the message has lost it.
        """
        where, of = self._of(topic, subscription)
        return await Mover(self._broker).get(where, of)

    async def reject(self, topic: str, subscription: str, id: MessageId) -> bool:  # noqa: A002  # as everywhere
        """Move a message to the alternate exchange of its subscription or topic, exactly once.

        Returns False if it was acknowledged or rejected before. Without a batch index, the whole entry.

        Raises:
            NotFound: the message does not exist, or there is no alternate exchange.
        """
        where, of = self._of(topic, subscription)
        ordinal = where.ordinal_of(id)
        if not where.first <= ordinal < where.visible or where.id_of(ordinal) != (id.ledger, id.entry, -1):
            raise NotFound(f"{where.name} has no message {id}; see `examine` or `topic peek`")
        self.require_alternate(of)
        return await Mover(self._broker).reject(where, of, ordinal, id.batch, ALTERNATE)

    def require_alternate(self, subscription: SubscriptionState) -> None:
        """Raise NotFound if neither a subscription nor its topic has an alternate exchange."""
        state = self._broker.machine.state
        if not state.exchanges.alternates.of(subscription.id, subscription.topic):
            raise NotFound(
                f"neither the subscription {subscription.name!r} nor its topic "
                f"{state.topics[subscription.topic].name} has an alternate exchange; set one, or acknowledge"
            )

    async def drain_topic(self, name: str) -> int:
        """Move what subscriptions of a topic still hold to its alternate exchange, then delete it.

        An entry is moved once, however many subscriptions need it. Returns the number of entries.

        Raises:
            NotFound: the topic has no alternate exchange.
            Busy: messages arrived faster than they were moved.
        """
        topic = self._broker.topic(topic_name(name))
        to = self._broker.machine.state.exchanges.alternates.topics.get(topic.id, 0)
        if not to:
            raise NotFound(f"the topic {topic.name} has no alternate exchange; set one first")
        return await self._drain(
            topic, list(topic.subscriptions.values()), to, TopicDelete(topic.id, True, True)
        )

    async def drain_subscription(self, topic: str, name: str) -> int:
        """Move what a subscription still holds to its alternate exchange, then delete it.

        Returns the number of entries.

        Raises:
            NotFound: neither it nor its topic has an alternate exchange.
            Busy: messages arrived faster than they were moved.
        """
        where, of = self._of(topic, name)
        self.require_alternate(of)
        return await self._drain(where, [of], ALTERNATE, SubscriptionDelete(of.id, True, True))

    async def _drain(self, topic: Topic, of: list[SubscriptionState], to: int, delete: Any) -> int:
        moved = 0
        for left in reversed(range(DRAINS)):
            if of:
                moved += await Mover(self._broker).move(topic, of, to, sys.maxsize, held=True)
            try:
                await self._broker.engine.submit(delete)
                break
            except Busy:  # a message arrived meanwhile
                if not left:
                    raise
        return moved

    # -- inside ----------------------------------------------------------------------------------------

    def _exchange(self, name: str) -> Topic:
        full = topic_name(name)
        found = self._broker.exchanges.get(self._broker.machine.state.names.get(full, 0))
        if found is None:
            self._broker.unreplicated.require_other(full)
            self._broker.unreplicated.require_own(full)
            if self._broker.machine.state.topic(full) is not None:
                raise NotFound(f"there is no exchange {full}: it is a topic; name an exchange, or create one")
            raise NotFound(f"there is no exchange {full}; create it first")
        return found

    def _destination(self, name: str) -> Topic:
        """Return a topic or an exchange."""
        full = topic_name(name)
        found = self._broker.exchanges.get(self._broker.machine.state.names.get(full, 0))
        if found is None:
            self._broker.unreplicated.require_own(full)
        return found or self._broker.topic(full)

    def _of(self, topic: str, subscription: str) -> tuple[Topic, SubscriptionState]:
        where = self._broker.topic(topic_name(topic))
        return where, where.subscription(subscription)

    def _name_of(self, exchange: int) -> str | None:
        return self._broker.machine.state.topics[exchange].name if exchange else None
