"""Producers: publish messages to a topic."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_args

from holdfast.broker import policy
from holdfast.broker.dispatch.types import require_delay
from holdfast.broker.state import Access
from holdfast.errors import Closed, Fenced, HoldfastError, Misuse
from holdfast.ids import MessageId
from holdfast.names import checked_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker

MESSAGE_BYTES = 5 << 20
"""Size of the largest message. A server's `limits.message_bytes` has it as its default."""

BATCH_MAX = 1 << 24
"""Messages in a batch; readers refuse larger ones."""

SEQUENCE_MAX = (1 << 63) - 2
"""The last sequence number of a message. Its successor fits into 63 bits, too."""

DELIVER_AT_MAX_MS = (1 << 63) - 1
"""The last delivery time: the field of a message has 63 bits."""

RUN_BYTES = 1 << 20
"""`send_many` splits longer lists into runs of about this size; each is one publish event."""


class Producer:
    """A producer of a topic. `Broker.producer` returns one; use it in `async with`.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker, broker.producer("orders") as p:
        ...         print(await p.send(b"two pounds of nails", key="smith"))
        ...         print([str(id) for id in await p.send_many([b"rope", b"tar"])])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        1:0
        ['1:1', '1:2']
    """

    def __init__(self, broker: Broker, topic: str, name: str | None, access: Access, batch: int) -> None:
        if not 1 <= batch <= BATCH_MAX:
            raise Misuse(f"a batch of {batch} messages; use 1 to {BATCH_MAX}")
        self._broker = broker
        self._topic_name = topic
        self._wanted_name = name
        self._access: Access = access
        self._batch = batch
        self._session = 0
        self._epoch = 0
        self._topic = 0
        self._sequence = 0
        self._order = asyncio.Lock()
        """Held from the first run of a call to its last: overlapping calls are not mixed (**I64**)."""
        self._posted: set[asyncio.Future[Any]] = set()
        self._failed: HoldfastError | None = None
        self.name = name or ""
        """The given name, or the one that the broker chose in `open`."""
        self.last_sequence = -1
        """The last sequence number of this name in the topic, when the producer was opened."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the session. `async with` calls it.

        Raises:
            Busy: the topic has an exclusive producer, or an attached producer has this name.
            Misuse: the access is not valid, or this producer is open already.
        """
        if self._session:
            raise Misuse(f"the producer {self.name} on {self._topic_name} is open already")
        if self._access not in get_args(Access):
            raise Misuse(
                f"a producer on {self._topic_name} with access {self._access!r}; use one of "
                f"{', '.join(get_args(Access))}"
            )
        if self._wanted_name:
            checked_name(self._wanted_name, "a producer")
        broker = self._broker
        topic = await broker.ensure_destination(self._topic_name)
        self.name = self._wanted_name or f"{broker.options.cluster}-{broker.random.token(6).hex()}"
        sessions = broker.sessions
        opened = await sessions.exclusive(await sessions.open_producer(topic, self.name, self._access))
        self._topic, self._session, self._epoch = topic.id, opened.session, opened.epoch
        self.last_sequence = opened.last_sequence
        self._sequence = opened.last_sequence + 1

    async def close(self) -> None:
        """Wait for posted messages, and end the session."""
        if self._session == 0:
            return
        try:
            await self.flush()
        finally:
            session, self._session = self._session, 0
            if self._broker.engine.is_open:
                await self._broker.sessions.close_producer(session)

    async def send(
        self,
        data: bytes,
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: datetime | int | None = None,
        ordering_key: bytes | None = None,
        sequence: int | None = None,
        deliver_at: datetime | int | None = None,
        deliver_after: float | None = None,
    ) -> MessageId:
        """Publish one message, and return its id when it is durable.

        A shared subscription delivers it at `deliver_at` (a datetime or ns since 1970), or `deliver_after`
        seconds from now. Other subscriptions and readers get it at once, because they keep the order.

        With deduplication, a message whose sequence number the topic has seen is not stored again. Its id is
        `MessageId(-1, -1)`.

        Raises:
            NoSpace: the disk is full; nothing was published.
            Fenced: another producer has exclusive access; open a new one.
            QuotaExceeded: the topic's backlog exceeds its quota, so its producers were closed.
            Closed: the broker has stopped. Whether the message was stored is not known.
        """
        run = cut_run([data], 0, self._topic_name)
        async with self._order:
            future = await self._publish(
                run, key, properties, event_time, ordering_key, sequence, deliver_at, deliver_after
            )
        published = await self._outcome(future)
        return MessageId(-1, -1) if published.duplicates else published.first

    async def send_many(
        self,
        data: Sequence[bytes],
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: datetime | int | None = None,
        sequence: int | None = None,
        deliver_at: datetime | int | None = None,
        deliver_after: float | None = None,
    ) -> list[MessageId]:
        """Publish many messages with the same key, properties and delivery time. Return their ids."""
        ids: list[MessageId] = []
        for future, count in await self._publish_runs(
            data, key, properties, event_time, sequence, deliver_at, deliver_after
        ):
            ids += (await self._outcome(future)).ids(count, self._batch)
        return ids

    async def publish(
        self,
        data: Sequence[bytes],
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: datetime | int | None = None,
        sequence: int | None = None,
        deliver_at: datetime | int | None = None,
        deliver_after: float | None = None,
    ) -> int:
        """As `send_many`, but return only the number of entries stored."""
        stored = 0
        for future, _ in await self._publish_runs(
            data, key, properties, event_time, sequence, deliver_at, deliver_after
        ):
            stored += (await self._outcome(future)).count
        return stored

    async def post(
        self,
        data: Sequence[bytes] | bytes,
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        event_time: datetime | int | None = None,
    ) -> None:
        """Publish without a wait for the disk, unless too much is under way. See `flush`."""
        self._raise_failed()
        runs = await self._publish_runs(
            [data] if isinstance(data, bytes) else data, key, properties, event_time, None
        )
        for future, _ in runs:
            self._posted.add(future)
            future.add_done_callback(self._post_done)

    async def flush(self) -> None:
        """Wait until all posted messages are durable.

        Raises:
            HoldfastError: a posted message was not stored. The error is that of the first one.
        """
        if self._posted:
            await asyncio.wait(self._posted)
        self._raise_failed()

    def _post_done(self, future: asyncio.Future[Any]) -> None:
        self._posted.discard(future)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, HoldfastError) and self._failed is None:
            self._failed = error

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    async def _publish_runs(
        self,
        data: Sequence[bytes],
        key: str | bytes | None,
        properties: dict[str, str] | None,
        event_time: datetime | int | None,
        sequence: int | None,
        deliver_at: datetime | int | None = None,
        deliver_after: float | None = None,
    ) -> list[tuple[asyncio.Future[Any], int]]:
        runs: list[tuple[asyncio.Future[Any], int]] = []
        start = 0
        async with self._order:
            while start < len(data):
                run = self._paced(cut_run(data, start, self._topic_name))
                at = None if sequence is None else sequence + start
                published = self._publish(
                    run, key, properties, event_time, None, at, deliver_at, deliver_after
                )
                runs.append((await published, len(run)))
                start += len(run)
        return runs

    async def _outcome(self, future: asyncio.Future[Any]) -> Any:
        """Wait until a run is durable; if a backlog quota prevents it, raise that."""
        try:
            return await future
        except Fenced:
            topic = self._broker.topics.get(self._topic)
            if topic is not None:
                self._broker.limiting.require_quota(topic)
            raise

    def _paced(self, run: list[bytes]) -> list[bytes]:
        """Return as much of a run as the topic's publish rate allows in a second."""
        topic = self._broker.topics.get(self._topic)
        if topic is None:
            return run
        most, room = self._broker.limiting.run_most(topic)
        if most == room == math.inf:
            return run
        count = size = 0
        for each in run:
            size += len(each)
            if count and (count >= most or size > room):
                break
            count += 1
        return run[:count]

    async def _publish(
        self,
        run: list[bytes],
        key: str | bytes | None,
        properties: dict[str, str] | None,
        event_time: datetime | int | None,
        ordering_key: bytes | None,
        sequence: int | None,
        deliver_at: datetime | int | None = None,
        deliver_after: float | None = None,
    ) -> asyncio.Future[Any]:
        self._require_open()
        deliver_at_ms = self._delivery_time(deliver_at, deliver_after)
        topic = self._broker.topics.get(self._topic)
        if topic is not None:
            await self._broker.limiting.admit_publish(topic, run)
        await self._broker.admit(sum(map(len, run)))
        self._require_open()  # it may have been closed while this waited
        if sequence is None:
            sequence = self._sequence
        if not 0 <= sequence <= SEQUENCE_MAX + 1 - len(run):
            raise Misuse(
                f"sequence {sequence} for {len(run)} messages of {self.name} to {self._topic_name}; "
                f"sequences are 0 to {SEQUENCE_MAX}. A producer of another name begins at 0"
            )
        future = self._broker.engine.add(
            lambda frame: frame.publish_messages(
                self._topic,
                self._session,
                self._epoch,
                self.name,
                sequence,
                run,
                self._broker.clock.now_ns() // 1_000_000,
                key=key,
                ordering_key=ordering_key,
                properties=properties,
                event_time_ms=milliseconds(event_time),
                batch=self._batch,
                deliver_at_ms=deliver_at_ms,
            )
        )
        self._sequence = max(self._sequence, sequence + len(run))
        if self._batch > 1:
            future.add_done_callback(lambda done: self._count(done, len(run)))
        return future

    def _delivery_time(self, deliver_at: datetime | int | None, deliver_after: float | None) -> int:
        """Return the delivery time in ms since the epoch; 0: none."""
        if deliver_at is deliver_after is None:
            return 0
        now_ms = self._broker.clock.now_ns() // 1_000_000
        if deliver_at is not None and deliver_after is not None:
            raise Misuse(
                f"a message to {self._topic_name} with deliver_at and deliver_after; use one of them"
            )
        if deliver_after is None:
            at_ms = milliseconds(deliver_at, "deliver_at")
        else:
            require_delay(deliver_after, "delivery")
            at_ms = now_ms + round(deliver_after * 1000)
        if not 0 <= at_ms <= DELIVER_AT_MAX_MS:
            raise Misuse(f"a message to {self._topic_name} at {deliver_at!r}; use a time since 1970")
        topic = self._broker.topics.get(self._topic)
        if topic is not None:  # else it is an exchange, whose topics have policies of their own
            policy.require_delay(self._broker, topic, at_ms, now_ms)
        return at_ms

    def _require_open(self) -> None:
        if self._session == 0:
            raise Closed(f"the producer {self.name or '(unnamed)'} on {self._topic_name} is not open")

    def _count(self, future: asyncio.Future[Any], messages: int) -> None:
        """Count messages of batches; the core counts only entries."""
        topic = self._broker.topics.get(self._topic)
        if topic is None or future.cancelled() or future.exception() is not None:
            return
        if not future.result().duplicates:
            topic.note_batches(messages, future.result().count)


def cut_run(data: Sequence[bytes], start: int, topic: str) -> list[bytes]:
    """Return the messages from `start` on that make one event.

    The run is cut by count first, so that small messages cost little.

    Raises:
        Misuse: a message is too large.
    """
    run = list(data[start : start + RUN_BYTES // 1024])
    largest = max(map(len, run))
    if largest > MESSAGE_BYTES:
        raise Misuse(
            f"a message of {largest} bytes to {topic}; the largest is {MESSAGE_BYTES}: send large data in "
            "pieces, or a reference to it"
        )
    while len(run) > 1 and sum(map(len, run)) > RUN_BYTES:
        del run[len(run) // 2 :]
    return run


def milliseconds(time: datetime | int | None, name: str = "event_time") -> int:
    """Return milliseconds since the epoch; an int is nanoseconds, None gives 0."""
    if time is None:
        return 0
    if isinstance(time, datetime):
        return round(time.timestamp() * 1000)
    if not isinstance(time, int):
        raise TypeError(f"{name} must be a datetime, nanoseconds since 1970 (int) or None, not {time!r:.50}")
    return time // 1_000_000
