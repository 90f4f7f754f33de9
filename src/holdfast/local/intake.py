"""Local ingest, the broker's side: requests, and the queues that `drain` empties."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.broker import MESSAGE_BYTES, Broker, Notice, Sample, TopicGone
from holdfast.errors import (
    Busy,
    Closed,
    Corrupt,
    Denied,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NotFound,
    Stale,
    TooManyParticipants,
)
from holdfast.local.account import Account
from holdfast.local.bell import QUEUES_MAX, Bell
from holdfast.local.drain import STALL_S, Segment
from holdfast.local.place import Announcement, Names, directory_of, is_of_node, origin, put_file, read_own
from holdfast.memory import Queue
from holdfast.names import INGEST

LOG = logging.getLogger("holdfast.ingest")

RETRY_S = 0.2
"""A door that cannot be had is tried again so often."""
ADOPT_TRIES = 100
ANSWER_S = 10.0
"""How long one request may take; others wait behind it."""
REPLY_S = 60.0
"""Age at which a reply that was not fetched is removed."""
IDLE_S = 60.0
"""Idle time after which a queue is removed: it takes memory."""
LOOK_S = 2.0
"""How often such are looked for, at least, and files that were removed by others."""


class Ingest:
    """Serves producers of this machine: `start` after the broker, `stop` before it is closed.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> def publish(where: str) -> None:
        ...     with holdfast.Producer("orders", directory=where) as p:
        ...         p.put(b"two pounds of nails", key="smith")
        >>> async def main(where: str) -> None:
        ...     async with holdfast.Broker.open(f"{where}/data") as broker:
        ...         async with Ingest(broker, f"{where}/data", directory=where):
        ...             await asyncio.to_thread(publish, where)
        ...         print([m.data for m in await broker.admin.examine("orders", count=9)])
        >>> with tempfile.TemporaryDirectory() as where:
        ...     asyncio.run(main(where))
        [b'two pounds of nails']
    """

    def __init__(
        self,
        broker: Broker,
        data: str | os.PathLike[str],
        *,
        directory: str | os.PathLike[str] | None = None,
        capacity: int = 16 << 20,
        topics_max: int = 256,
        message_bytes_max: int = MESSAGE_BYTES,
        idle_s: float = IDLE_S,
    ) -> None:
        """Args:
        data: the broker's data directory, by which producers can ask for it.
        directory: where producers look; default `$HOLDFAST_RUNTIME_DIR`, else `/dev/shm`.
        capacity: of each topic's queue, in bytes; a message may have half of it.
        topics_max: how many topics may have a queue at once.
        message_bytes_max: of a message with what goes with it; consumers take no larger ones.
        idle_s: idle time after which a queue is removed.
        """
        self.broker = broker
        self.names = Names.of(directory_of(directory), broker.incarnation, broker.membership.node)
        self._data = str(Path(data).resolve())
        self._capacity = capacity
        self._topics_max = topics_max
        self._message_bytes_max = message_bytes_max
        self._idle_s = idle_s
        self._origin = origin(broker.membership.node)
        self._segments: dict[int, Segment] = {}
        """By the topic's id."""
        self._aside: list[Segment] = []
        """Their files were removed by others: they serve the producers that are attached, and no others."""
        self._announcement: Announcement | None = None
        self._door: Queue | None = None
        self._bells: list[Bell] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving: list[asyncio.Task[None]] = []
        self._messages = self._bytes = self._refused = self._damaged = 0

    async def __aenter__(self) -> Ingest:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Take over what is left, then be found.

        Raises:
            Locked: a copy of this data directory is being served.
            Denied, NoSpace: the runtime directory cannot be used.
        """
        self._announcement = Announcement(self.names, self._data)
        try:
            await self._take_over()
            self._drop_without_account()
            await self._forget_old()
            self._door = self._make_door()
        except BaseException:
            await self.stop()
            raise
        self.broker.watch(self._settled)
        self.broker.add_meter(self._counts)
        loop = asyncio.get_running_loop()
        self._serving = [
            loop.create_task(self._serve(), name="ingest"),
            loop.create_task(self._look(), name="ingest, idle queues"),
        ]
        self._announcement.show()

    def _make_door(self) -> Queue:
        directory = str(self.names.directory)
        try:
            return Queue.create(
                self.names.door, capacity=1 << 16, stall_limit=STALL_S, exist_ok=True, directory=directory
            )
        except (Stale, Corrupt, LayoutMismatch):  # of another boot or version: producers ask again
            Queue.unlink(self.names.door, directory=directory)
            return self._make_door()

    async def stop(self) -> None:
        """Leave the queues to the next broker; unused ones are removed."""
        if self._announcement is not None:
            self._announcement.close()
            self._announcement = None
        if self._serving:
            for task in self._serving:
                task.cancel()
            await asyncio.wait(self._serving)
            self._serving = []
            self.broker.unwatch(self._settled)
            self.broker.remove_meter(self._counts)
        if self._tasks:
            await asyncio.wait(self._tasks)
        lost = Closed("the broker has stopped, and the files of this queue were removed; open it again")
        ends = [segment.stop() for segment in self._segments.values()]
        ends += [segment.end(lost) for segment in self._aside]  # the next broker cannot find them
        for failed in await asyncio.gather(*ends, return_exceptions=True):
            if failed is not None:
                LOG.error("an ingest queue was not left in order: %r", failed)
        self._segments.clear()
        self._aside.clear()
        for bell in self._bells:
            bell.close()
        self._bells.clear()
        if self._door is not None:
            self._leave_door()

    def _leave_door(self) -> None:
        assert self._door is not None
        door, self._door = self._door, None
        door.detach()
        with contextlib.suppress(HoldfastError):  # producers ask again
            Queue.unlink(self.names.door, directory=str(self.names.directory))

    def lend(self) -> Bell:
        """One that can wait for one queue more."""
        for bell in self._bells:
            if bell.users < QUEUES_MAX:
                break
        else:
            bell = Bell()
            self._bells.append(bell)
        bell.users += 1
        return bell

    @property
    def topics(self) -> list[str]:
        """Those that have a queue."""
        return sorted(each.topic.name for each in self._segments.values())

    # -- figures ---------------------------------------------------------------------------------------

    def drained(self, messages: int, size: int) -> None:
        """So much more is stored."""
        self._messages += messages
        self._bytes += size

    def _counts(self) -> Iterator[Sample]:
        yield "holdfast_ingest_queues", len(self._segments)
        yield "holdfast_ingest_queues_waiting", sum(each.waiting for each in self._segments.values())
        yield "holdfast_ingest_queues_damaged_total", self._damaged
        yield "holdfast_ingest_messages_total", self._messages
        yield "holdfast_ingest_bytes_total", self._bytes
        yield "holdfast_ingest_refused_total", self._refused

    # -- what earlier brokers have left ----------------------------------------------------------------

    async def _take_over(self) -> None:
        for path in self.names.found("reply"):
            _remove_own(path)
        for path in self.names.found("account"):
            try:
                account = Account.open(path)
                info = account.info
                account.close()
                topic = self.broker.topic(info["topic"])
                segment = Segment(self, topic, info["identity"])
            except Denied as error:  # another user's: it stays, and tells nothing
                LOG.warning("%s", error)
                continue
            except HoldfastError as error:
                await self._discard(path, error)
                continue
            try:
                await self._adopt(segment)
                if topic.incarnation.hex() != info["incarnation"]:
                    raise NotFound(f"{topic.name} was deleted, and made anew")
            except (NotFound, Stale, Corrupt) as error:
                LOG.warning("what was not confirmed of the ingest of %s is lost: %s", topic.name, error)
                await segment.end(error)
                continue
            except (
                HoldfastError
            ) as error:  # of another version or user: a broker that can read it may come back
                LOG.warning(
                    "the ingest queue %s is left there, and not drained: %s", segment.queue_name, error
                )
                segment.leave()
                continue
            self._segments[topic.id] = segment
            segment.start(left_behind=True)

    async def _adopt(self, segment: Segment) -> None:
        """Adopt a queue; a producer may hold the broker's place for a moment."""
        for _ in range(ADOPT_TRIES):
            try:
                segment.adopt()
                return
            except TooManyParticipants:
                await asyncio.sleep(RETRY_S / 4)
        segment.adopt()

    async def _discard(self, path: Path, error: Exception) -> None:
        """Remove an account without a topic, and its queue."""
        LOG.warning("%s is removed: %s", path, error)
        identity = path.name.removesuffix(".account").split(".", 3)[-1]
        with contextlib.suppress(HoldfastError, OSError):
            ended = Account.open(path, writable=True)
            ended.end(error if isinstance(error, HoldfastError) else Corrupt(str(error)))
            ended.close()
        for name in self._queues():
            if name.endswith(f".{identity}"):
                self._drop(name)
        _remove_own(path)

    def _queues(self) -> list[str]:
        """The queues of this data directory, but for the door."""
        names = Queue.list(directory=str(self.names.directory))
        prefix = f"ingest.{self.names.mark}."
        return [name for name in names if name.startswith(prefix) and name != self.names.door]

    def _drop(self, queue_name: str) -> None:
        """Close a queue that is not drained any more, and remove it."""
        with contextlib.suppress(HoldfastError):
            queue = Queue.open(queue_name, directory=str(self.names.directory))
            queue.close()
            queue.detach()
        with contextlib.suppress(HoldfastError):
            Queue.unlink(queue_name, directory=str(self.names.directory))

    def _drop_without_account(self) -> None:
        """Others removed the accounts of these: nothing tells how far they are stored."""
        identities = {
            path.name.removesuffix(".account").split(".", 3)[-1] for path in self.names.found("account")
        }
        for name in self._queues():
            if name.split(".", 3)[-1] not in identities:
                LOG.warning("the ingest queue %s is removed: its account is missing", name)
                self._drop(name)

    async def _forget_old(self) -> None:
        """Forget positions of segments from before the last boot: no producer repeats them.

        Those of other members stay: whether their producers are gone is not known here.
        """
        node = self.broker.membership.node
        for topic in list(self.broker.topics.values()):
            for name in self.broker.producers_known(topic):
                identity = name.removeprefix(INGEST)
                if identity == name or not is_of_node(identity, node):
                    continue
                if not identity.startswith(f"{self._origin}."):
                    with contextlib.suppress(NotFound, Busy):
                        await self.broker.admin.forget_producer(topic.name, name)

    # -- requests --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        bell = self.lend()
        while True:
            try:
                if self._door is None:
                    self._door = self._make_door()
                with await bell.take(self._door, 1) as requests:
                    await self._answer_safely(requests.tobytes()[0])
            except HoldfastError as error:  # damaged, closed or removed by other code: another one
                LOG.warning("the queue of requests for ingest is made anew: %s", error)
                if self._door is not None:
                    self._leave_door()
                await asyncio.sleep(RETRY_S)

    async def _answer_safely(self, request: bytes) -> None:
        try:
            await self._answer(request)
        except Exception:  # a mistake in the code: others are let in all the same
            LOG.exception("a request for ingest could not be answered")

    async def _answer(self, request: bytes) -> None:
        try:
            asked = json.loads(request)
            topic, token = str(asked["topic"]), str(asked["reply"])
            if not (token.isascii() and token.isalnum() and len(token) <= 32):
                raise ValueError(f"{token!r} names no reply")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            LOG.warning("a request for ingest that cannot be read: %s", error)
            return
        answer: dict[str, str]
        try:
            async with asyncio.timeout(ANSWER_S):
                segment = await self._segment(topic)
            if segment.closing:
                answer = {"again": "the queue is being taken away"}
            else:
                answer = {"queue": segment.queue_name, "account": self.names.account(segment.identity).name}
        except HoldfastError as error:
            self._refused += 1
            answer = {"error": type(error).__name__, "text": str(error)}
        except TimeoutError:
            self._refused += 1
            answer = {"error": "Timeout", "text": f"{topic} could not be opened in {ANSWER_S:.0f} s"}
        try:
            put_file(self.names.reply(token), json.dumps(answer).encode())
        except HoldfastError as error:
            LOG.warning("a producer could not be answered: %s", error)
        asyncio.get_running_loop().call_later(REPLY_S, _remove_own, self.names.reply(token))

    async def _segment(self, name: str) -> Segment:
        """The topic's queue, made if it has none."""
        topic = await self.broker.ensure_topic(name)
        found = self._segments.get(topic.id)
        if found is not None and not found.closing and not found.is_there():
            LOG.warning("the files of the ingest queue of %s were removed; newcomers get another", topic.name)
            self._aside.append(self._segments.pop(topic.id))
        elif found is not None:
            found.used = asyncio.get_running_loop().time()
            return found
        if len(self._segments) + len(self._aside) >= self._topics_max:
            raise Misuse(f"{self._topics_max} topics have an ingest queue already; publish over the network")
        self.broker.admit_now(0)
        segment = Segment(self, topic, f"{self._origin}.{self.broker.random.token(8).hex()}")
        await segment.create(self._capacity, self._message_bytes_max)
        self._segments[topic.id] = segment
        segment.start(left_behind=False)
        return segment

    # -- endings ---------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Withdraw unused queues; later producers get another one."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(LOOK_S, self._idle_s / 4))
            for segment in [*self._segments.values(), *self._aside]:
                if segment in self._aside or loop.time() - segment.used >= self._idle_s:
                    segment.used = loop.time()  # a silent producer is not looked at all the time
                    with contextlib.suppress(HoldfastError):  # damaged: its own task finds out
                        segment.withdraw()
            self._be_found()

    def _be_found(self) -> None:
        """Others may have removed the files by which producers find this broker: write them anew."""
        if self._door is not None and not self.names.file(self.names.door).exists():
            LOG.warning("other code removed the queue of requests for ingest; it is created again")
            self._door.close()  # wakes the task that waits for it
        try:
            if self._announcement is not None and self._announcement.renew():
                LOG.warning("the descriptor %s was removed; it is written anew", self._announcement.path)
        except HoldfastError as error:
            LOG.warning("producers of this machine cannot find this broker: %s", error)

    def _settled(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, TopicGone):
                for segment in [*self._segments.values(), *self._aside]:
                    if segment.topic.id == notice.topic.id:
                        self._spawn(self.ended(segment, NotFound(f"{segment.topic.name} was deleted")))

    async def ended(self, segment: Segment, error: HoldfastError) -> None:
        """A segment cannot go on."""
        if self._segments.get(segment.topic.id) is segment:
            del self._segments[segment.topic.id]
        elif segment in self._aside:
            self._aside.remove(segment)
        else:
            return
        self._damaged += isinstance(error, Corrupt)
        await segment.end(error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _remove_own(path: Path) -> None:
    """Remove a file of this user; others are left."""
    try:
        if read_own(path) is not None:
            path.unlink(missing_ok=True)
    except (HoldfastError, OSError) as error:
        LOG.warning("%s is left there: %s", path, error)
