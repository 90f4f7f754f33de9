"""Consumers of subscriptions, and readers, which need no subscription."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from holdfast._core import Batch, TopicMessage
from holdfast.arguments import checked_timeout, checked_whole
from holdfast.broker.api.moving import Mover
from holdfast.broker.dispatch.types import require_delay, require_options
from holdfast.broker.events import ALTERNATE
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.state import SubscriptionType
from holdfast.broker.subscribing import require_type
from holdfast.errors import Closed, Misuse, Timeout
from holdfast.ids import MessageId
from holdfast.names import checked_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.topic import Topic

Start = Literal["earliest", "latest"] | MessageId | datetime | int
"""A place in a topic: its ends, a message, or a time (an int is nanoseconds since the epoch)."""


RECEIVER_QUEUE_MAX = (1 << 32) - 1
"""Messages: one request of a client can give at most this many permits."""


class Inbox:
    """The endpoint of a consumer: batches that were delivered and not yet taken.

    It gives permits for `size` messages, and more when half of them were taken.
    """

    def __init__(self, size: Any) -> None:
        if not isinstance(size, int) or not 1 <= size <= RECEIVER_QUEUE_MAX:
            raise Misuse(f"a receiver queue of {size!r} messages; use 1 to {RECEIVER_QUEUE_MAX}")
        self.size: int = size
        self._batches: deque[Batch] = deque()
        self._current: Iterator[TopicMessage] = iter(())
        self._ahead: TopicMessage | None = None
        """The next message, if `empty` has fetched it."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = 0
        self._end: Exception | None = None
        self._damage: Exception | None = None
        """The error of the next entry, until something is delivered."""
        self._flow: tuple[Dispatcher, int] | None = None
        self.is_active = True

    def attach(self, dispatcher: Dispatcher, consumer: int) -> None:
        self._flow = (dispatcher, consumer)
        self._taken = 0
        dispatcher.flow(consumer, self.size)

    # -- calls of the dispatcher -----------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        self._damage = None
        self._batches.append(batch)
        self._wake()

    def cleared(self, reset_number: int) -> None:
        """Drop messages that were not taken, and grant permits for a whole queue."""
        self._damage = None
        self._batches.clear()
        self._current = iter(())
        self._ahead = None
        self._taken = 0
        if self._flow is not None:
            dispatcher, consumer = self._flow
            dispatcher.grant(consumer, self.size)

    def active(self, active: bool) -> None:
        self.is_active = active

    def failed(self, error: Exception) -> None:
        self._damage = error
        self._wake()

    def closed(self, reason: Exception) -> None:
        self._end = reason
        self._wake()

    # -- calls of the consumer -------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        if self._ahead is None:
            self._ahead = next(self._current, None)
        return self._ahead is None and not self._batches

    def take(self, count: int) -> list[TopicMessage]:
        """Take at most `count` messages that are here, and give permits for them."""
        taken: list[TopicMessage] = []
        if self._ahead is not None:
            taken, self._ahead = [self._ahead], None
        while len(taken) < count:
            message = next(self._current, None)
            if message is not None:
                taken.append(message)
            elif self._batches:
                batch = self._batches.popleft()
                # A compressed batch is one message here, and took as many permits as it has messages.
                self._taken += batch.permits - len(batch)
                if not taken and len(batch) <= count:
                    taken = list(batch)
                elif len(batch) <= count - len(taken):
                    taken += batch
                else:
                    self._current = iter(batch)
            else:
                break
        self._took(len(taken))
        return taken

    async def arrival(self, timeout: float | None) -> bool:
        """Wait for a message; return False after the timeout.

        Raises:
            Closed: no message will be delivered any more.
            Corrupt: the next entry is damaged on the disk.
        """
        if self._end is not None:
            raise self._end
        if self._damage is not None:
            raise type(self._damage)(str(self._damage))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            return False
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
        return True

    def _took(self, count: int) -> None:
        self._taken += count
        if self._flow is not None and self._taken * 2 >= self.size:
            permits, self._taken = self._taken, 0
            dispatcher, consumer = self._flow
            dispatcher.flow(consumer, permits)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Receiver(ABC):
    """The common part of consumers and readers: receive messages, and seek."""

    def __init__(self, broker: Broker, topic: str, receiver_queue: int) -> None:
        self._broker = broker
        self._topic_name = topic
        self._inbox = Inbox(receiver_queue)
        self._topic: Topic | None = None
        self._dispatcher: Dispatcher | None = None
        self._id = 0
        self._session = 0
        """Of a consumer of a durable subscription; else 0."""
        self._next = 0
        """Of a reader: the first ordinal with messages that were not taken."""
        self._compacted = False
        """It reads the compacted view of the topic."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[TopicMessage]:
        return self._messages()

    @abstractmethod
    async def open(self) -> None:
        """Attach to the topic. `async with` calls it."""

    async def close(self) -> None:
        """Detach. Messages that were not acknowledged go to other consumers."""
        if self._dispatcher is None:
            return
        dispatcher, self._dispatcher = self._dispatcher, None
        dispatcher.remove_consumer(self._id)
        if self._session:
            await self._broker.sessions.leave(self._session)
        assert self._topic is not None
        self._broker.volatile.release(self._topic, dispatcher)
        self._inbox.closed(Closed(f"this {type(self).__name__.lower()} of {self._topic_name} was closed"))

    async def receive(self, timeout: float | None = None) -> TopicMessage:
        """Return the next message; wait for one.

        Raises:
            Timeout: no message arrived in that many seconds.
            Closed: the broker was closed, or the topic deleted.
        """
        return (await self.receive_many(1, timeout))[0]

    async def receive_many(self, count: int, timeout: float | None = None) -> list[TopicMessage]:
        """Return 1 to `count` messages: those that are here, else the next ones.

        Raises:
            Timeout: no message arrived in that many seconds.
            Closed: the broker was closed, or the topic deleted.
            Corrupt: the next entry is damaged on the disk; the text names file and position. `seek` or
                `admin.skip` pass it; the option `skip_damaged` skips all such entries.
        """
        if (type(count) is not int or count < 1) and checked_whole("the count of receive_many", count) < 1:
            raise Misuse(f"receive_many({count}) on {self._topic_name}; ask for 1 or more messages")
        if timeout is not None:
            timeout = checked_timeout(timeout)
        taken = self._attached()._inbox.take(count)
        if taken:
            return taken
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while not taken:
            left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
            if not await self._inbox.arrival(left):
                raise Timeout(f"no message on {self._topic_name} in {timeout} s")
            taken = self._inbox.take(count)
        return taken

    async def _messages(self) -> AsyncIterator[TopicMessage]:
        while True:
            try:
                yield await self.receive()
            except Closed:
                return

    def _require_closed(self) -> None:
        if self._dispatcher is not None:
            raise Misuse(f"this {type(self).__name__.lower()} of {self._topic_name} is open already")

    def _take_place(
        self,
        dispatcher: Dispatcher,
        name: str,
        priority: int,
        type_: SubscriptionType,
        ack_timeout_s: float | None,
        keys: KeyShared | None = None,
        session: int = 0,
    ) -> None:
        """Attach to the dispatcher; undo all of it if that fails."""
        try:
            of = (name, priority, type_, ack_timeout_s, keys, session, self._compacted)
            id_ = dispatcher.add_consumer(self._inbox, *of)
            try:
                self._inbox.attach(dispatcher, id_)
            except BaseException:
                dispatcher.remove_consumer(id_)
                raise
        except BaseException:
            assert self._topic is not None
            self._broker.volatile.release(self._topic, dispatcher)
            raise
        self._dispatcher, self._id = dispatcher, id_

    def _attached(self) -> Self:
        if self._dispatcher is None:
            raise Closed(f"this {type(self).__name__.lower()} of {self._topic_name} is not open")
        return self

    def _serving(self) -> Dispatcher:
        self._attached()
        assert self._dispatcher is not None
        return self._dispatcher

    async def seek(self, to: Start, timeout: float | None = None) -> None:
        """Continue from another place in the topic.

        An id that the topic does not have stands for the next message. After the call, no message of an
        earlier read arrives, and no earlier acknowledgement has an effect.

        Raises:
            CursorModifying: another reset was under way until the timeout. Nothing was changed.
            Timeout: it is not known whether the reset happened; call again, or look at the stats.
        """
        dispatcher = self._serving()
        assert self._topic is not None
        self._next = await self._broker.reset(self._topic, dispatcher, to, timeout)


class Consumer(Receiver):
    """A consumer of a subscription. `Broker.consumer` returns one; use it in `async with`.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with (
        ...             broker.consumer("orders", "billing", type="shared") as c,
        ...             broker.producer("orders") as p,
        ...         ):
        ...             await p.send(b"nails")
        ...             message = await c.receive(timeout=5)
        ...             print(message.data)
        ...             await c.ack(message, receipt=True)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        b'nails'
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        subscription: str,
        type: SubscriptionType,  # noqa: A002  # the word that users know
        start: Start,
        receiver_queue: int,
        priority: int,
        name: str | None,
        ack_timeout: float | None,
        receipts: bool,
        durable: bool,
        keys: KeyShared | None = None,
        compacted: bool = False,
    ) -> None:
        super().__init__(broker, topic, receiver_queue)
        self._compacted = compacted
        self.subscription = subscription
        self.type: SubscriptionType = type
        self._start: Start = start
        self._priority = priority
        self.name = name or ""
        self._ack_timeout = ack_timeout
        self._receipts = receipts
        self._durable = durable
        self._keys = keys

    async def open(self) -> None:
        """Join the subscription, and create it if it is new. `async with` calls it.

        Raises:
            Busy: the subscription is exclusive and has a consumer, or another one has some of the hashes.
            Misuse: the subscription has consumers of another type, an option is out of its range, or this
                consumer is open.
        """
        self._require_closed()
        require_options(self._priority, self._ack_timeout)
        if self.type not in get_args(SubscriptionType):
            raise Misuse(
                f"a consumer of type {self.type!r}; use one of {', '.join(get_args(SubscriptionType))}"
            )
        if self._keys is not None and self.type != "key_shared":
            raise Misuse(f"keys of a {self.type} consumer; only those of type key_shared share keys")
        if self._keys is not None:
            self._keys.require_sound()
        checked_name(self.subscription, "a subscription")
        if self.name:
            checked_name(self.name, "a consumer")
        broker = self._broker
        self._topic = topic = await broker.ensure_topic(self._topic_name)
        self.name = self.name or f"consumer-{broker.random.token(4).hex()}"
        if not self._durable:
            require_type(broker, topic, self.type)
            of = (self.subscription, self._start, self._compacted)
            self._attach(await broker.volatile.open(topic, *of))
            return
        subscription = await broker.ensure_subscription(
            topic, self.subscription, self._start, compacted=self._compacted
        )
        session = await broker.sessions.join(subscription, self.name, self.type, self._priority, self._keys)
        try:
            self._attach(broker.dispatcher(topic, subscription), session)
        except BaseException:  # else its session stays, and an exclusive subscription is busy for ever
            broker.sessions.drop_consumer(session)
            raise
        self._session = session

    def _attach(self, dispatcher: Dispatcher, session: int = 0) -> None:
        of = (self.name, self._priority, self.type, self._ack_timeout)
        self._take_place(dispatcher, *of, self._keys, session)

    @property
    def active(self) -> bool:
        """Whether this consumer of a failover subscription gets the messages."""
        return self._inbox.is_active

    async def ack(self, message: TopicMessage, receipt: bool | None = None) -> None:
        """Acknowledge one message: it is not delivered again.

        Without a receipt the call returns at once, and the message may be redelivered after a crash within
        some 10 ms. With a receipt it returns when the acknowledgement is durable.
        """
        await self.ack_many([message], receipt)

    async def ack_many(self, messages: Sequence[TopicMessage], receipt: bool | None = None) -> None:
        """Acknowledge many messages with one event."""
        wait = self._receipts if receipt is None else receipt
        done = self._serving().ack(messages, receipt=wait)
        if done is not None:
            await done

    async def ack_cumulative(self, message: TopicMessage, receipt: bool | None = None) -> None:
        """Acknowledge this message and all before it. Not on a shared or key_shared subscription."""
        wait = self._receipts if receipt is None else receipt
        done = self._serving().ack_cumulative(message, receipt=wait)
        if done is not None:
            await done

    def nack(self, message: TopicMessage, delay: float | None = None) -> None:
        """Redeliver a message after a delay; None: a delay that grows each time.

        Raises:
            Misuse: the delay is out of its range.
        """
        require_delay(delay)
        self._serving().nack(self._id, [message.ordinal], delay)

    async def reject(self, message: TopicMessage) -> bool:
        """Move a message to the alternate exchange of the subscription or its topic, exactly once.

        It is durable when this returns. Returns False if the message was acknowledged or rejected before.

        Raises:
            NotFound: there is no alternate exchange; the message stays.
            Outdated: the subscription was reset since the message was delivered; it is delivered again.
            Misuse: the subscription is not durable.
        """
        self._serving()
        assert self._topic is not None
        subscription = self._topic.subscriptions.get(self.subscription)
        if subscription is None or not self._session:
            raise Misuse(f"{self.subscription} on {self._topic_name} is not durable; acknowledge the message")
        self._broker.admin.require_alternate(subscription)
        return await Mover(self._broker).reject(
            self._topic, subscription, message.ordinal, message.batch_index, ALTERNATE, message.reset_number
        )

    def redeliver(self) -> None:
        """Redeliver all messages that this consumer has received and not acknowledged."""
        self._serving().redeliver(self._id, None)


class Reader(Receiver):
    """Reads a topic from any place, without a subscription. `Broker.reader` returns one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker, broker.producer("orders") as p:
        ...         await p.send_many([b"rope", b"tar"])
        ...         async with broker.reader("orders", start="earliest") as r:
        ...             while await r.has_more():
        ...                 print((await r.read()).data)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        b'rope'
        b'tar'
    """

    def __init__(
        self, broker: Broker, topic: str, start: Start, receiver_queue: int, compacted: bool = False
    ) -> None:
        super().__init__(broker, topic, receiver_queue)
        self._start: Start = start
        self._compacted = compacted

    async def open(self) -> None:
        self._require_closed()
        self._topic = topic = await self._broker.ensure_topic(self._topic_name)
        dispatcher = await self._broker.volatile.open(topic, None, self._start, self._compacted)
        self._take_place(dispatcher, "reader", 0, "exclusive", None)
        self._next = dispatcher.read_position

    async def receive_many(self, count: int, timeout: float | None = None) -> list[TopicMessage]:
        messages = await super().receive_many(count, timeout)
        last = messages[-1]
        whole = last.batch_index < 0 or last.batch_index + 1 >= last.batch_size
        # An entry is delivered at once. Of a compacted batch the last message may be left out.
        self._next = last.ordinal + (whole or self._compacted)
        # The cursor of a reader follows its messages, so that nothing stays pending.
        self._serving().ack_cumulative(last, receipt=False)
        return messages

    async def read(self, timeout: float | None = None) -> TopicMessage:
        """Return the next message, as `receive` does."""
        return await self.receive(timeout)

    async def has_more(self) -> bool:
        """Return whether there is a message that was not read yet."""
        self._attached()
        assert self._topic is not None
        # Compare what was taken: entries that the dispatcher has read may still be on their way here.
        if not self._inbox.empty:
            return True
        view = self._serving().compacted
        if view is not None:
            return max(self._next, view.first) <= view.last()
        return max(self._next, self._topic.first) < self._topic.visible
