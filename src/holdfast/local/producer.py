"""`holdfast.Producer`: publish to a broker on this machine, through shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast import _core, errors
from holdfast.arguments import checked_patience, checked_timeout, require_text
from holdfast.errors import (
    Closed,
    Corrupt,
    Full,
    HoldfastError,
    Misuse,
    NotFound,
    Stale,
    Timeout,
    TooManyParticipants,
)
from holdfast.local.account import Account
from holdfast.local.place import Found, Names, brokers, directory_of, read_own
from holdfast.memory import Queue

if TYPE_CHECKING:
    from typing_extensions import Buffer

ASK_S = 2.0
"""Interval after which an unanswered request is repeated: the broker and its door may have been replaced."""
LOOK_S = 0.05
"""A waiting call looks at least this often: it relies on no wake-up."""


class Producer:
    """Publishes to a topic of the broker on this machine, for the same user.

    `put` returns as soon as the message is in shared memory, and tells its place there. `confirmed` is the
    place up to which everything is durable in the broker; `flush` waits until that holds for all that this
    producer has put. Whichever process is killed: a confirmed message is stored once. A message that was put
    and is not confirmed is stored once or not at all.

    The broker may be restarted meanwhile; `put` goes on until the queue is full. Threads may share a
    producer. After a fork, make a new one. For asyncio there are `aopen`, `aput`, `aput_many`, `aflush`,
    `await_confirmed` and `aclose`, which wait without blocking the loop.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> from holdfast.local.intake import Ingest
        >>> def publish(where: str) -> None:
        ...     with holdfast.Producer("orders", directory=where) as p:
        ...         place = p.put(b"two pounds of nails", key="smith")
        ...         p.flush(timeout=5.0)
        ...         print(p.confirmed >= place)
        >>> async def main(where: str) -> None:  # in the broker's process
        ...     async with holdfast.Broker.open(f"{where}/data") as broker:
        ...         async with Ingest(broker, f"{where}/data", directory=where):
        ...             await asyncio.to_thread(publish, where)
        >>> with tempfile.TemporaryDirectory() as where:
        ...     asyncio.run(main(where))
        True
    """

    def __init__(
        self,
        topic: str,
        *,
        data: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Find the broker and ask it for the topic's queue, created on first use.

        Args:
            topic: its name, in full or `orders` for `persistent://public/default/orders`. It is made if it is
                not there and the broker makes topics.
            data: the broker's data directory; needed where several brokers of this user serve.
            directory: where brokers are found; default `$HOLDFAST_RUNTIME_DIR`, else `/dev/shm`.
            timeout: seconds to wait for a broker, and for its answer.

        Raises:
            NotFound: no broker serves here, or there is no such topic and none is made.
            Terminated, Busy, Misuse, NoSpace: why the broker refuses.
            Timeout: the broker does not answer.
        """
        require_text("topic", topic)
        deadline = time.monotonic() + checked_patience(timeout)
        self.topic = topic
        self._pid = os.getpid()
        self._put_end = 0
        self._closed = True
        self._directory = directory_of(directory)
        self._data = None if data is None else os.path.realpath(data)
        self.broker = self._find(deadline)
        self._names = Names(self._directory, self.broker.incarnation)
        self._attach(topic, deadline)
        self.topic = str(self._account.info["topic"])
        self.name = f"local-{os.getpid()}-{secrets.token_hex(4)}"
        """Of this producer, as consumers see it."""
        self._message_bytes_max: int = self._account.info["message_bytes_max"]
        self._number = 0
        self._lock = threading.Lock()
        self._alarm = _core.Alarm()
        self._closed = False

    # -- finding ---------------------------------------------------------------------------------------

    def _find(self, deadline: float) -> Found:
        for _ in _attempts(deadline):
            live, stale = brokers(self._directory)
            fitting = [
                each for each in live if self._data is None or os.path.realpath(each.data) == self._data
            ]
            if len(fitting) == 1:
                return fitting[0]
            if len(fitting) > 1:
                where = ", ".join(each.data for each in fitting)
                raise Misuse(f"several brokers serve here ({where}); choose one: Producer(…, data=…)")
        words = (
            f"no broker serves {'in' if self._data is None else self._data + ' by way of'} {self._directory}"
        )
        if stale:
            words += f"; {stale[0].name} was left by one that has died"
        raise NotFound(f"{words}; start one: holdfast serve --data DIR (with the same $HOLDFAST_RUNTIME_DIR)")

    def _attach(self, topic: str, deadline: float) -> None:
        """Ask for the queue, and map it and its account."""
        for _ in _attempts(deadline):
            answer = self._ask(topic, deadline)
            if "error" in answer:
                made = getattr(errors, str(answer["error"]), HoldfastError)
                raise made(answer["text"])
            if "again" in answer:
                continue
            with contextlib.ExitStack() as undo:
                try:
                    account = Account.open(self._directory / answer["account"])
                    undo.callback(account.close)
                    self._queue = Queue.open(answer["queue"], directory=str(self._directory))
                except NotFound:  # it was removed meanwhile
                    continue
                undo.callback(self._queue.detach)
                if account.withdrawn:  # just now, without a producer: there will be another queue (I124)
                    continue
                if self._queue.slot >= account.info.get("participants", 256) - 1:
                    raise TooManyParticipants(
                        f"{topic} has as many producers here as there can be. The last place is for the "
                        "broker: share producers between threads, or publish over the network"
                    )
                undo.pop_all()
            self._account = account
            return
        raise Timeout(f"the queue of {topic} is removed again and again; is a program deleting the topic?")

    def _ask(self, topic: str, deadline: float) -> dict[str, Any]:
        token = secrets.token_hex(8)
        request = json.dumps({"topic": topic, "reply": token}).encode()
        reply = self._names.reply(token)
        asked = -ASK_S
        for _ in _attempts(deadline):
            if time.monotonic() - asked >= ASK_S:
                # A broken door is replaced by the broker.
                with contextlib.suppress(
                    NotFound, Full, Timeout, TooManyParticipants, Stale, Closed, Corrupt
                ):
                    with Queue.open(self._names.door, directory=str(self._directory)) as door:
                        door.put(request, timeout=max(0.0, min(ASK_S, deadline - time.monotonic())))
                    asked = time.monotonic()
            told = read_own(reply)
            if told is not None:
                reply.unlink(missing_ok=True)
                return dict(json.loads(told))
        raise self._late(f"the broker of {self.broker.data} (pid {self.broker.pid}) did not answer")

    # -- putting ---------------------------------------------------------------------------------------

    def put(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        ordering_key: bytes | None = None,
        event_time_ms: int = 0,
        timeout: float | None = None,
    ) -> int:
        """Hand a message over; it is durable once `confirmed` reaches the returned place.

        Raises:
            Full: `timeout=0` and no room. Timeout: no room in that time. Both say what is in the way.
            Closed, NotFound, Terminated, Corrupt: the queue has ended, and why.
            Misuse: the message is too large.
        """
        return self._put(self._encoded([data], 1, key, properties, ordering_key, event_time_ms), timeout)

    def put_many(
        self,
        data: Sequence[Buffer],
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        batch: int = 1,
        timeout: float | None = None,
    ) -> int:
        """Hand messages over, with one key and properties; `batch` of them make an entry.

        Answers the place behind the last. After an error `error.done` says how many entries were put.
        """
        return self._put(self._encoded(data, batch, key, properties, None, event_time_ms), timeout)

    def _put(self, entries: list[bytes], timeout: float | None) -> int:
        try:
            if len(entries) == 1:
                self._queue.put(entries[0], timeout)
            elif entries:
                self._queue.put_many(entries, timeout)
        except HoldfastError as error:
            raise self._told(error) from None
        return self._end()

    def _encoded(
        self,
        data: Sequence[Buffer],
        batch: int,
        key: str | bytes | None,
        properties: Mapping[str, str] | None,
        ordering_key: bytes | None,
        event_time_ms: int,
    ) -> list[bytes]:
        self._require_open()
        if not data:
            return []
        with self._lock:
            number, self._number = self._number, self._number + len(data)
        entries = _core.encode_messages(
            data,
            self.name,
            number,
            time.time_ns() // 1_000_000,
            key=key,
            ordering_key=ordering_key,
            properties=properties,
            event_time_ms=event_time_ms,
            batch=batch,
        )
        largest = max(map(len, entries))
        if largest > self._message_bytes_max:
            raise Misuse(
                f"a message of {largest} bytes to {self.topic}; the largest is {self._message_bytes_max}: "
                "send large data in pieces, or its place"
            )
        return entries

    def _told(self, error: HoldfastError) -> HoldfastError:
        """The queue's error, with what the broker says."""
        if isinstance(error, Misuse) and self._closed:  # by another thread, meanwhile
            return Closed(f"the producer on {self.topic} was closed")
        if isinstance(error, Closed):
            return self._account.error or Closed(f"the broker takes nothing more for {self.topic}")
        if not isinstance(error, Full | Timeout):
            return error
        told = type(error)(f"{error}{self._why()}")
        told.pid, told.done = error.pid, error.done
        return told

    def _end(self) -> int:
        """The place behind what was put here last."""
        with contextlib.suppress(Misuse):  # it was closed: as it was then
            self._put_end = self._queue._put_end
        return self._put_end

    # -- what became of it -----------------------------------------------------------------------------

    @property
    def confirmed(self) -> int:
        """Everything that was put below this place is durable. Never goes back."""
        return self._account.confirmed

    @property
    def pending(self) -> bool:
        """Is something that was put here not confirmed yet?"""
        return self._end() > self._account.confirmed

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was put is durable.

        Raises:
            Timeout: not in that time; the text says what the broker waits for, or that it is gone.
            Closed, NotFound, Terminated, Corrupt: it will not be; the text says why.
        """
        self._require_open()
        self.wait(self._end(), timeout)

    def wait(self, place: int, timeout: float | None = None) -> None:
        """Wait until everything up to a place that `put` told is durable. Raises as `flush`."""
        timeout = checked_timeout(timeout)
        self._require_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._is_confirmed(place):
                heard = self._queue._listen(True)  # the broker settles after it confirms, and that rings
                alarm = self._alarm.hear()
                if self._is_confirmed(place):
                    return
                left = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
                if left <= 0:
                    raise self._late(f"what was put to {self.topic} is not confirmed after {timeout} s")
                _core.wait_any(self._alarm, alarm, [(self._queue, True, heard)], left)
        except Misuse as error:
            raise self._told(error) from None

    def _is_confirmed(self, place: int) -> bool:
        """Raises what has ended the queue, if it will never be."""
        ended = self._account.error  # first: what is confirmed at the end stays so
        if self._account.confirmed >= place:
            return True
        if self._closed:
            raise Closed(f"the producer on {self.topic} was closed")
        if ended is not None:
            raise ended
        return False

    def close(self, timeout: float | None = 30.0) -> None:
        """Flush, and leave. The queue stays, for others and for the broker."""
        if self._closed:
            return
        try:
            self.flush(timeout)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._end()
        self._closed = True
        self._alarm.ring()  # wakes other threads
        self._queue.detach()
        self._account.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._leave()

    # -- asyncio ---------------------------------------------------------------------------------------

    @classmethod
    async def aopen(cls, topic: str, **options: Any) -> Self:
        """A producer, as `Producer(topic, …)` makes it; looks for the broker in another thread.

        Example:
            >>> import asyncio, holdfast, tempfile
            >>> from holdfast.local.intake import Ingest
            >>> async def main(where: str) -> None:
            ...     async with holdfast.Broker.open(f"{where}/data") as broker:
            ...         async with Ingest(broker, f"{where}/data", directory=where):
            ...             async with await holdfast.Producer.aopen("orders", directory=where) as p:
            ...                 place = await p.aput(b"rope")
            ...                 await p.await_confirmed(place, timeout=5.0)
            ...                 print(p.confirmed >= place)
            >>> with tempfile.TemporaryDirectory() as where:
            ...     asyncio.run(main(where))
            True
        """
        return await asyncio.to_thread(cls, topic, **options)

    async def aput(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        ordering_key: bytes | None = None,
        event_time_ms: int = 0,
        timeout: float | None = None,
    ) -> int:
        """`put` for asyncio. One that is cancelled has put nothing."""
        entries = self._encoded([data], 1, key, properties, ordering_key, event_time_ms)
        return await self._aput(entries, timeout)

    async def aput_many(
        self,
        data: Sequence[Buffer],
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        batch: int = 1,
        timeout: float | None = None,
    ) -> int:
        """`put_many` for asyncio. One that is cancelled has put a part, in order."""
        return await self._aput(self._encoded(data, batch, key, properties, None, event_time_ms), timeout)

    async def _aput(self, entries: list[bytes], timeout: float | None) -> int:
        try:
            if entries:
                await self._queue.aput_many(entries, timeout)
        except HoldfastError as error:
            raise self._told(error) from None
        return self._end()

    async def aflush(self, timeout: float | None = None) -> None:
        """`flush` for asyncio."""
        self._require_open()
        await self.await_confirmed(self._end(), timeout)

    async def await_confirmed(self, place: int, timeout: float | None = None) -> None:
        """`wait` for asyncio."""
        self._require_open()

        def attempt() -> None:
            if not self._is_confirmed(place):
                raise Full("not yet")

        try:
            await self._queue._wait(True, timeout, attempt)
        except (Full, Timeout):
            raise self._late(f"what was put to {self.topic} is not confirmed after {timeout} s") from None
        except Misuse as error:
            raise self._told(error) from None

    async def aclose(self, timeout: float | None = 30.0) -> None:
        """`close` for asyncio."""
        if self._closed:
            return
        try:
            await self.aflush(timeout)
        finally:
            self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.aclose()
        elif not self._closed:
            self._leave()

    def __repr__(self) -> str:
        return f"<holdfast.Producer {self.topic!r}{' (closed)' if self._closed else ''}>"

    # -- what is in the way ----------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._pid != os.getpid():
            raise Misuse(f"the producer on {self.topic} was made before fork(); make a new one in the child")
        if self._closed:
            raise Closed(f"the producer on {self.topic} was closed")

    def _why(self) -> str:
        trouble = self._account.trouble
        if not self.broker.lives():
            return f"; the broker (pid {self.broker.pid}) has died: start it again, and it continues"
        return f"; the broker says: {trouble}" if trouble else ""

    def _late(self, words: str) -> Timeout:
        return Timeout(words + (self._why() if hasattr(self, "_account") else ""))


def _attempts(deadline: float) -> Iterator[None]:
    """Yield until the deadline, and sleep in between: a little, then longer each time."""
    pause_s = 0.0005
    while True:
        yield
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(pause_s * 1.5, 0.02)
        if time.monotonic() >= deadline:
            return


__all__ = ["Producer"]
