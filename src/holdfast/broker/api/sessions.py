"""Sessions of producers and consumers: what every front end opens before it publishes or consumes.

Promises upward: a session whose opener gives up is closed again; a session ends at most once. Needs from
below: an engine that submits events, and the notices that `Effects` passes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.broker.events import (
    ConsumerJoin,
    ConsumerJoined,
    ConsumerLeave,
    Event,
    ProducerClose,
    ProducerGone,
    ProducerOpen,
    ProducerOpened,
    ProducerReady,
)
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.subscribing import require_type
from holdfast.errors import Fenced, HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.dispatch.pacing import Bucket
    from holdfast.broker.state import Access, SubscriptionState, SubscriptionType
    from holdfast.broker.topic import Topic


class Sessions:
    """Opens and closes sessions. `Broker.sessions` is the one of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.waiting: dict[int, asyncio.Future[ProducerReady]] = {}
        """Producers that wait for exclusive access, by session."""

    # -- producers -------------------------------------------------------------------------------------

    async def open_producer(
        self, topic: Topic, name: str, access: Access = "shared", attempt: int = 0, epoch: int = -1
    ) -> ProducerOpened:
        """Open a producer's session. If it waits for exclusive access, call `exclusive` next.

        Raises:
            Busy: another producer has the name or the topic, or it has its largest number of producers.
            QuotaExceeded: the backlog of the topic exceeds its quota.
            Fenced: there was a newer exclusive producer than `epoch`.
        """
        member = self._broker.group.member
        most = self._broker.decided.producers_max
        event = ProducerOpen(topic.id, name, access, member, attempt, epoch, most)
        opened: ProducerOpened = await self._enter(event, ProducerClose)
        return opened

    async def exclusive(self, opened: ProducerOpened) -> ProducerOpened | ProducerReady:
        """Wait until a producer that asked for exclusive access has it."""
        if not opened.waiting:
            return opened
        try:
            return await self._ready(opened.session)
        except asyncio.CancelledError:
            self.drop_producer(opened.session)
            raise
        finally:
            self.waiting.pop(opened.session, None)

    async def close_producer(self, session: int) -> None:
        """End a producer's session; durable when it returns."""
        await self._broker.engine.submit(ProducerClose(session))

    def drop_producer(self, session: int) -> None:
        """End a producer's session without waiting, unless the broker has stopped."""
        self._drop(ProducerClose(session))

    def delay_most_ms(self, topic: Topic) -> int:
        """Return the longest delay of a producer's messages to a topic; 0: no limit."""
        return int((self._broker.limiting.of(topic).delayed_most_s or 0) * 1000)

    def entry_bytes_max(self, topic: Topic) -> int:
        """Return the size of a topic's largest entry; 0: the limit of the server."""
        if topic.id not in self._broker.topics:  # an exchange
            return 0
        return self._broker.limiting.of(topic).message_bytes_max or 0

    def publish_bucket(self, topic: Topic) -> Bucket | None:
        """Return the publish rate of a topic; None: it has none."""
        return None if topic.id not in self._broker.topics else self._broker.limiting.publish_bucket(topic)

    def is_open(self, session: int) -> bool:
        """Return whether a session has not ended yet."""
        return session in self._broker.machine.state.sessions

    # -- consumers -------------------------------------------------------------------------------------

    async def join(
        self,
        subscription: SubscriptionState,
        name: str,
        type: SubscriptionType,  # noqa: A002  # the word that users know
        priority: int,
        keys: KeyShared | None = None,
    ) -> int:
        """Open a consumer's session with a durable subscription. Returns its number.

        Raises:
            Busy: the subscription is exclusive and has a consumer, or another one has some of the hashes.
            Misuse: the subscription has consumers of another type, or that share keys in another way; or
                policies exclude the type.
        """
        topic = self._broker.topics.get(subscription.topic)
        if topic is not None:  # else it was deleted, as the event says
            require_type(self._broker, topic, type)
        if type == "key_shared" and keys is None:
            keys = KeyShared()
        options = self._broker.decided
        most = (options.consumers_max, options.subscription_consumers_max)
        member = self._broker.group.member
        event = ConsumerJoin(subscription.id, name, type, priority, member, keys, *most)
        joined: ConsumerJoined = await self._enter(event, ConsumerLeave)
        return joined.session

    async def leave(self, session: int) -> None:
        """End a consumer's session; durable when it returns. Does nothing once the broker has stopped."""
        if self._broker.engine.is_open:
            await self._broker.engine.submit(ConsumerLeave(session))

    def drop_consumer(self, session: int) -> None:
        """End a consumer's session without waiting, unless the broker has stopped."""
        self._drop(ConsumerLeave(session))

    # -- what the engine tells -------------------------------------------------------------------------

    def ready(self, notice: ProducerReady) -> None:
        """Wake a producer that has exclusive access now."""
        ready = self._ready(notice.session)
        if not ready.done():
            ready.set_result(notice)

    def gone(self, notice: ProducerGone) -> None:
        """Refuse a producer whose session ended while it waited."""
        waiting = self.waiting.pop(notice.producer.session, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(Fenced(f"the producer does not wait any more: {notice.reason}"))

    def closed(self, session: int) -> None:
        """Forget a producer that gave up, although its turn may have come."""
        self.waiting.pop(session, None)

    def ended(self, reason: HoldfastError) -> None:
        """Refuse all producers that wait: the broker has stopped."""
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(reason)

    # -- inside ----------------------------------------------------------------------------------------

    async def _enter(self, event: Event, leave: Callable[[int], Event]) -> Any:
        """Open a session. If the caller is cancelled meanwhile, the session is closed again."""
        future = self._broker.engine.submit(event)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._undo(done, leave))
            raise

    def _undo(self, opened: asyncio.Future[Any], leave: Callable[[int], Event]) -> None:
        if not opened.cancelled() and opened.exception() is None:
            self._drop(leave(opened.result().session))

    def _drop(self, event: Event) -> None:
        if self._broker.engine.is_open:
            self._broker.engine.submit(event)

    def _ready(self, session: int) -> asyncio.Future[ProducerReady]:
        if session not in self.waiting:
            self.waiting[session] = asyncio.get_running_loop().create_future()
        return self.waiting[session]
