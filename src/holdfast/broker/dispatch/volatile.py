"""Volatile subscriptions: cursors in memory, changed by the same events, which are applied at once.

The life of a volatile subscription, which `VolatileSubscriptions` alone changes:

```
            open               release, without a consumer
  ─────────────────► served ──────────────────────────────────► ended
                     │    ▲                                       ▲
  release(keep_s),   │    │ find, open                            │
  without a consumer ▼    │            keep_s are over            │
                      kept ───────────────────────────────────────┘
```

served
    Consumers are attached, or a caller of `find` or `open` is about to attach one.
kept
    No consumer is attached, and its clients are expected back: a seek or an unload has closed them. Their
    position stays.
ended
    Its dispatcher is closed, and its name is free. A deleted topic or a closing broker ends it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.dispatch.types import Cursor, Submit, TopicReader
from holdfast.broker.events import Event
from holdfast.broker.events.base import Context
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.broker.uptime import Uptime
from holdfast.errors import Closed, HoldfastError, NotFound
from holdfast.ledger import AckState

if TYPE_CHECKING:
    from holdfast.broker.api.consumer import Start
    from holdfast.broker.broker import Broker
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.topic import Topic

Serve: TypeAlias = "Callable[[Topic, Cursor, Submit], Dispatcher]"
"""Creates the dispatcher of a cursor, and gives it to its topic."""


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

    @property
    def lowest(self) -> int:
        return self.ledgers.first


class _State:
    """A broker's state with one subscription, as its events use it."""

    def __init__(self, subscription: SubscriptionState, topic: TopicReader) -> None:
        self._subscription = subscription
        self.topics = {subscription.topic: _TopicState(topic)}
        self.thinned: dict[int, object] = {}
        """Readers of a last-value topic see what it still has."""
        self.uptime = Uptime()

    def require_subscription(self, _: int) -> SubscriptionState:
        return self._subscription

    def wake(self, _: object) -> None:
        """Do nothing: the owner of a topic sees its readers."""

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


class VolatileSubscriptions:
    """The volatile subscriptions of a broker: it alone creates, keeps and ends them.

    Each call of `find` or `open` is followed by a consumer that joins, or by `release`.
    """

    def __init__(self, broker: Broker, serve: Serve) -> None:
        self._broker = broker
        self._serve = serve
        self._opened = 0
        self._kept: dict[Dispatcher, asyncio.TimerHandle] = {}

    @property
    def kept(self) -> int:
        """Number of subscriptions whose clients are expected back."""
        return len(self._kept)

    def find(self, topic: Topic, name: str) -> Dispatcher | None:
        """Return the dispatcher of a subscription that is served or kept; it is served then."""
        dispatcher = topic.volatile.get(name)
        if dispatcher is not None:
            self._forget_timer(dispatcher)
        return dispatcher

    async def open(self, topic: Topic, name: str | None, start: Start, compacted: bool = False) -> Dispatcher:
        """Return the dispatcher of a subscription, which begins at `start` if it is new.

        None as the name: a subscription of one reader. `compacted`: the start may be a place that only the
        compacted view has.

        Raises:
            NotFound: the topic was deleted.
        """
        found = None if name is None else self.find(topic, name)
        if found is not None:
            return found
        reading = CompactedReading(topic) if compacted else topic
        place = await reading.place(start)
        if topic.id not in self._broker.topics:
            raise NotFound(f"{topic.name} was deleted meanwhile; open it again")
        found = None if name is None else self.find(topic, name)
        if found is not None:
            return found  # created by another caller meanwhile
        self._opened += 1
        of = (-self._opened, name or f"reader-{self._opened}", place)
        cursor = VolatileSubscription(reading, *of)
        dispatcher = self._serve(topic, cursor, cursor.submit)
        if name is not None:
            topic.volatile[name] = dispatcher
        return dispatcher

    def release(self, topic: Topic, dispatcher: Dispatcher, keep_s: float | None = None) -> None:
        """End a subscription without consumers: at once, or unless it is found in `keep_s`.

        A durable subscription, or one that has consumers, stays as it is.
        """
        if dispatcher.consumers or dispatcher.subscription[0] >= 0:
            return
        if keep_s is None:
            self._end(topic, dispatcher)
        elif dispatcher not in self._kept:
            self._kept[dispatcher] = asyncio.get_running_loop().call_later(
                keep_s, self._time_is_up, topic, dispatcher
            )

    def close(self) -> None:
        """Cancel the timers of kept subscriptions: the broker closes all dispatchers."""
        for dispatcher in [*self._kept]:
            self._forget_timer(dispatcher)

    def _time_is_up(self, topic: Topic, dispatcher: Dispatcher) -> None:
        self._forget_timer(dispatcher)
        self.release(topic, dispatcher)

    def _forget_timer(self, dispatcher: Dispatcher) -> None:
        timer = self._kept.pop(dispatcher, None)
        if timer is not None:
            timer.cancel()

    def _end(self, topic: Topic, dispatcher: Dispatcher) -> None:
        self._forget_timer(dispatcher)
        id, name = dispatcher.subscription  # noqa: A001
        if topic.dispatchers.get(id) is dispatcher:
            topic.forget(id)
            dispatcher.close(Closed("its last consumer has left"))
        if topic.volatile.get(name) is dispatcher:
            del topic.volatile[name]
