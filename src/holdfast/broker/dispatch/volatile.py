"""Volatile subscriptions: cursors in memory, changed by the same events, which are applied at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.broker.dispatch.types import TopicReader
from holdfast.broker.events import Event
from holdfast.broker.events.base import Context
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import HoldfastError
from holdfast.ledger.acks import AckState


class _Reach:
    """The visible range of a topic, in the place of its ledgers."""

    def __init__(self, topic: TopicReader) -> None:
        self._topic = topic

    @property
    def first(self) -> int:
        return self._topic.first

    @property
    def end(self) -> int:
        return self._topic.visible


class _TopicState:
    def __init__(self, topic: TopicReader) -> None:
        self.ledgers = _Reach(topic)


class _State:
    """A broker's state with one subscription, as its events use it."""

    def __init__(self, subscription: SubscriptionState, topic: TopicReader) -> None:
        self._subscription = subscription
        self.topics = {subscription.topic: _TopicState(topic)}

    def require_subscription(self, _: int) -> SubscriptionState:
        return self._subscription

    def touch(self, _: object) -> None:
        """Do nothing: the state is in memory only."""


class VolatileSubscription(SubscriptionState):
    """A cursor in memory. A dispatcher uses its `submit` in place of the engine's.

    Example:
        >>> import asyncio
        >>> from types import SimpleNamespace
        >>> from holdfast.broker.events import Ack
        >>> async def main() -> int:
        ...     cursor = VolatileSubscription(SimpleNamespace(first=0, visible=10), -1, "reader", start=4)
        ...     await cursor.submit(Ack(-1, reset_number=0, cumulative=7))
        ...     return cursor.acks.acked_to
        >>> asyncio.run(main())
        7
    """

    def __init__(self, topic: TopicReader, id: int, name: str, start: int) -> None:  # noqa: A002
        super().__init__(id, 0, name, AckState(start), owner_epoch=0)
        self._state = _State(self, topic)

    def submit(self, event: Event) -> asyncio.Future[Any]:
        """Apply an event at once: it needs no order, and nothing is durable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.apply(event))
        except HoldfastError as error:
            future.set_exception(error)
            future.exception()  # marks it as seen: asyncio does not warn if the caller does not wait
        return future

    def apply(self, event: Event) -> Any:
        """Apply an event of this subscription, and return its outcome."""
        return event.apply(cast(BrokerState, self._state), Context(None, 0))
