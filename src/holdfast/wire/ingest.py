"""Local ingest, the broker's side: queues in shared memory are drained into topics.

Needs from below: `Queue` (a message that was taken stays this process's until it is settled or the kernel
says that the process is dead) and the log, which stores nothing twice under the name of a segment. Promises
upward: a message that was put is stored once; it is settled, and confirmed to its producer, after it is
durable. See docs/ingest.md for why that holds whoever is killed when.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import _core
from holdfast._core import Message, parse_entry
from holdfast.broker.broker import Broker
from holdfast.broker.events import DeduplicationForget, ProducerClose, ProducerOpen, TopicGone
from holdfast.broker.machine import Applied
from holdfast.broker.producer import MESSAGE_BYTES, RUN_BYTES
from holdfast.broker.topic import Topic
from holdfast.errors import (
    Busy,
    Closed,
    Corrupt,
    Empty,
    Fenced,
    Full,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NoQuorum,
    NoSpace,
    NotFound,
    Stale,
    Timeout,
)
from holdfast.ingest.account import Account
from holdfast.ingest.place import NAME, Announcement, Names, boot, directory_of, put_file, read_own
from holdfast.memory.queue import Queue
from holdfast.wire.bell import QUEUES_MAX, Bell

LOG = logging.getLogger("holdfast.ingest")

TAKE = 1024
"""Messages that are taken at once."""
RETRY_S = 0.2
"""What is in the way of storing is tried again so often."""
ANSWER_S = 10.0
"""How long one request may take; others wait behind it."""
REPLY_S = 60.0
"""A reply that nobody has fetched by then is taken away."""
LAST_S = 5.0
"""How long a segment that is left waits for what is under way to the disk."""
STALL_S = 1.0
"""A living producer that is stopped in the middle of a put delays the others by this at most."""
_HEADER, _GRANULE = 32, 64  # of a block in the queue
_TRANSIENT = (NoSpace, NoQuorum, Busy, Fenced, Full, Timeout)


class Segment:
    """One ingest queue and its account: drained into one topic, in the order of positions, until it ends."""

    def __init__(self, ingest: Ingest, topic: Topic, identity: str) -> None:
        self._ingest = ingest
        self._broker = ingest.broker
        self.topic = topic
        self.identity = identity
        self.name = f"{NAME}{identity}"
        """The producer's name under which the log deduplicates; the sequence is the position."""
        self.queue_name = ingest.names.queue(topic.name, identity)
        self.queue: Queue | None = None
        self.account: Account | None = None
        self._session = 0
        self._epoch = 0
        self._taken = -1
        """The highest position that was taken in this life of the broker."""
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._bell = ingest.lend()

    # -- its life --------------------------------------------------------------------------------------

    async def create(self, capacity: int) -> None:
        """Open the session, which may be refused, then make the account, then the queue."""
        await self._open_session()
        info = {
            "topic": self.topic.name,
            "incarnation": self.topic.state.incarnation.hex(),
            "identity": self.identity,
            "message_bytes_max": min(MESSAGE_BYTES, capacity // 2 - _HEADER),
        }
        directory = self._ingest.names.directory
        try:
            self.account = Account.create(self._ingest.names.account(self.identity), info)
            self.queue = Queue.create(
                self.queue_name,
                capacity=capacity,
                participants=256,
                stall_limit=STALL_S,
                directory=str(directory),
            )
        except BaseException:
            await self._remove()
            raise

    def adopt(self) -> None:
        """Take over what an earlier broker has left.

        Raises:
            NotFound, Stale, Corrupt: there is nothing to take over.
        """
        names = self._ingest.names
        self.account = Account.open(names.account(self.identity), writable=True)
        self.account.mend()
        self.queue = Queue.open(self.queue_name, directory=str(names.directory))

    def start(self, left_behind: bool) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(left_behind), name=self.queue_name)

    async def stop(self) -> None:
        """Leave it as it is, for the next broker: what is not settled goes back. Nobody's is removed."""
        await self._halt()
        with contextlib.suppress(HoldfastError):
            if self._unused():
                # Who comes in just now is told that it is closed; what was put before that is drained later.
                self.queue.close()  # type: ignore[union-attr]
                if self._unused():
                    await self.end(Closed("the broker has stopped, and nobody used the queue; open it again"))
                    return
        self._leave()
        with contextlib.suppress(HoldfastError):  # it has ended: so has the session
            await self._close_session()

    def _unused(self) -> bool:
        """Nothing is in it, and nobody else is attached."""
        if self.queue is None or self._broker.engine.ended is not None:
            return False
        stats = self.queue.stats()
        others = any(
            each.attached and each.alive and each.slot != self.queue.slot for each in stats.participants
        )
        return not (others or stats.ready or stats.returned or stats.taken or stats.writing)

    async def _halt(self) -> None:
        self._stopping = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _leave(self) -> None:
        """Call it once."""
        self._bell.users -= 1
        if self.queue is not None:
            self.queue.detach()
            self.queue = None
        if self.account is not None:
            self.account.close()
            self.account = None

    async def end(self, error: HoldfastError) -> None:
        """Nothing more is stored: producers are told, everything is taken away."""
        await self._halt()
        if self.account is not None:
            self.account.end(error)
        if self.queue is not None:
            with contextlib.suppress(HoldfastError):  # a damaged one is only left
                self.queue.close()
                self.queue.purge()
        await self._remove()

    async def _remove(self) -> None:
        names = self._ingest.names
        self._leave()
        with contextlib.suppress(HoldfastError):
            Queue.unlink(self.queue_name, directory=str(names.directory))
        names.account(self.identity).unlink(missing_ok=True)
        with contextlib.suppress(HoldfastError):  # the topic is gone, or the broker ends: as good
            await self._close_session()
            await self._broker.engine.submit(DeduplicationForget(self.topic.state.id, self.name))

    # -- its session -----------------------------------------------------------------------------------

    async def _open_session(self) -> None:
        event = ProducerOpen(self.topic.state.id, self.name, "shared", self._broker.group.member)
        opened = await self._broker.enter(event, ProducerClose)
        self._session, self._epoch = opened.session, opened.epoch

    async def _close_session(self) -> None:
        if self._session:
            session, self._session = self._session, 0
            await self._broker.engine.submit(ProducerClose(session))

    # -- draining --------------------------------------------------------------------------------------

    async def _run(self, left_behind: bool) -> None:
        try:
            if left_behind:
                await self._store(*await self._collect())
            assert self.queue is not None
            while True:
                messages = await self._bell.take(self.queue, TAKE)
                await self._store(list(messages), messages.tobytes())
        except HoldfastError as error:
            if self._broker.engine.ended is not None:
                return  # the next broker goes on
            LOG.warning("the ingest queue of %s ends: %s", self.topic.name, error)
            await self._ingest.ended(self, error)
        except Exception as error:  # a mistake in the code: what is in the queue stays for the next broker
            LOG.exception("the ingest queue of %s is not drained any more", self.topic.name)
            if self.account is not None:
                self.account.say(f"{type(error).__name__}: {error}")

    async def _collect(self) -> tuple[list[Message], list[bytes]]:
        """Everything that an earlier broker had in its hands, in the order of positions.

        The log knows the highest position that is durable, and takes whatever is not above it for stored. So
        nothing may be published before all below it is in hand. What a dead reader had comes back in any
        order, and whoever hands it on may be slow. But a block is taken for the first time only after all
        before it were; so when no block is anybody else's and none waits to be taken again, everything below
        the highest position in hand is in hand, settled, or never was a message.
        """
        assert self.queue is not None
        assert self.account is not None
        queue, hands = self.queue, list[Message]()
        while True:
            queue.recover()
            with contextlib.suppress(Empty, Closed):
                while len(batch := queue.get_many(TAKE, 0)) == 1:  # what comes back comes one by one
                    hands += batch
                hands += batch
            if not self._returning():
                break
            self.account.say("waiting for what another process still holds of this queue")
            await asyncio.sleep(0.001)
        self.account.say("")
        hands.sort(key=lambda message: message.position)
        return hands, [bytes(message.data) for message in hands]

    def _returning(self) -> bool:
        """Does somebody else hold a message, or does one wait to be taken again?"""
        assert self.queue is not None
        look = _core.inspect_attached(self.queue)["queue"]
        others = any(each["taken"] and each["slot"] != self.queue.slot for each in look["holders"])
        return others or look["blocks"]["RETRY"] > 0

    async def _store(self, messages: Sequence[Message], entries: list[bytes]) -> None:
        """Publish in the order of positions, one event after another; settle what is durable."""
        assert self.account is not None
        start = 0
        while start < len(messages):
            run = list[tuple[int, int, bytes]]()
            size, damage = 0, None
            for at in range(start, len(messages)):
                if run and size + len(entries[at]) > RUN_BYTES:
                    break
                damage = self._damage(messages[at].position, entries[at])
                if damage is not None:
                    break
                self._taken = messages[at].position
                run.append((self._taken, 1, entries[at]))
                size += len(entries[at])
            if run:
                await self._publish(run, size)
                last, _, entry = run[-1]
                self.account.confirm(last + (len(entry) + _HEADER + _GRANULE - 1) // _GRANULE)
                for message in messages[start : start + len(run)]:
                    message.settle()
                if self._stopping:
                    raise asyncio.CancelledError
            if damage is not None:
                raise damage
            start += len(run)

    def _damage(self, position: int, entry: bytes) -> Corrupt | None:
        """What cannot be stored ends the queue: confirming what comes behind it would confirm it, too."""
        if position <= self._taken:
            return Corrupt(
                f"position {position} of the ingest queue of {self.topic.name} came back: somebody else "
                "reads it; what is not confirmed may be lost"
            )
        try:
            parse_entry(entry)
        except Corrupt as error:
            return Corrupt(f"position {position} of the ingest queue of {self.topic.name}: {error}")
        return None

    async def _publish(self, run: list[tuple[int, int, bytes]], size: int) -> None:
        """Until it is durable. One event at a time: if one were refused and the next one not, it would be
        taken for stored later, because its positions are lower."""
        assert self.account is not None
        engine, said = self._broker.engine, ""
        while True:
            try:
                await self._broker.admit(size)
                if self._session == 0:
                    await self._open_session()
                future = engine.publish_entries(
                    self.topic.state.id, self._session, self._epoch, self.name, run
                )
                await _finished(future)
                break
            except _TRANSIENT as error:
                if isinstance(error, Fenced | Busy):
                    self._session = 0
                if str(error) != said:
                    said = str(error)
                    self.account.say(said)
                    LOG.warning("ingest of %s waits: %s", self.topic.name, said)
                await asyncio.sleep(RETRY_S)
        if said:
            self.account.say("")


async def _finished(future: asyncio.Future[Any]) -> None:
    """The outcome. Who is cancelled meanwhile waits for it a while: then it can be settled here."""
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future], timeout=LAST_S)
        if not future.done() or future.cancelled() or future.exception() is not None:
            raise


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
    ) -> None:
        """Args:
        data: the broker's data directory, by which producers can ask for it.
        directory: where producers look; default `$HOLDFAST_RUNTIME_DIR`, else `/dev/shm`.
        capacity: of each topic's queue, in bytes; a message may have half of it.
        topics_max: how many topics may have a queue at once.
        """
        self.broker = broker
        self.names = Names(directory_of(directory), broker.store.incarnation.hex())
        self._data = str(Path(data).resolve())
        self._capacity = capacity
        self._topics_max = topics_max
        self._boot = boot()
        self._segments: dict[int, Segment] = {}
        """By the topic's id."""
        self._announcement: Announcement | None = None
        self._door: Queue | None = None
        self._bells: list[Bell] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving: asyncio.Task[None] | None = None

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
            await self._forget_old()
            self._door = self._make_door()
        except BaseException:
            await self.stop()
            raise
        self.broker.watchers.append(self._settled)
        self._serving = asyncio.get_running_loop().create_task(self._serve(), name="ingest")
        self._announcement.show()

    def _make_door(self) -> Queue:
        directory = str(self.names.directory)
        try:
            return Queue.create(
                self.names.door, capacity=1 << 16, stall_limit=STALL_S, exist_ok=True, directory=directory
            )
        except (Stale, Corrupt, LayoutMismatch):  # of another boot or version: who asked asks again
            Queue.unlink(self.names.door, directory=directory)
            return self._make_door()

    async def stop(self) -> None:
        """Leave everything as it is, for the next broker."""
        if self._announcement is not None:
            self._announcement.close()
            self._announcement = None
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
            self._serving = None
            self.broker.watchers.remove(self._settled)
        if self._tasks:
            await asyncio.wait(self._tasks)
        for segment in list(self._segments.values()):
            await segment.stop()
        self._segments.clear()
        for bell in self._bells:
            bell.close()
        self._bells.clear()
        if self._door is not None:
            self._door.detach()
            self._door = None
            with contextlib.suppress(HoldfastError):  # who asks meanwhile asks again
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

    # -- what earlier brokers have left ----------------------------------------------------------------

    async def _take_over(self) -> None:
        for path in self.names.found("reply"):
            path.unlink(missing_ok=True)
        for path in self.names.found("account"):
            try:
                account = Account.open(path)
                info = account.info
                account.close()
                topic = self.broker.topic(info["topic"])
                segment = Segment(self, topic, info["identity"])
            except (HoldfastError, KeyError) as error:
                await self._discard(path, error)
                continue
            try:
                segment.adopt()
                if topic.state.incarnation.hex() != info["incarnation"]:
                    raise NotFound(f"{topic.name} was deleted, and made anew")
            except (NotFound, Stale, Corrupt) as error:
                LOG.warning("what was not confirmed of the ingest of %s is lost: %s", topic.name, error)
                await segment.end(error)
                continue
            self._segments[topic.state.id] = segment
            segment.start(left_behind=True)

    async def _discard(self, path: Path, error: Exception) -> None:
        """The account of a topic that is gone, or none at all: its queue goes with it."""
        LOG.warning("%s is removed: %s", path, error)
        identity = path.name.removesuffix(".account").split(".", 3)[-1]
        with contextlib.suppress(HoldfastError, OSError):
            ended = Account.open(path, writable=True)
            ended.end(error if isinstance(error, HoldfastError) else Corrupt(str(error)))
            ended.close()
        for name in Queue.list(directory=str(self.names.directory)):
            if name.startswith(f"ingest.{self.names.incarnation[:16]}.") and name.endswith(f".{identity}"):
                with contextlib.suppress(HoldfastError):
                    queue = Queue.open(name, directory=str(self.names.directory))
                    queue.close()
                    queue.detach()
                with contextlib.suppress(HoldfastError):
                    Queue.unlink(name, directory=str(self.names.directory))
        path.unlink(missing_ok=True)

    async def _forget_old(self) -> None:
        """Positions of segments from before the last boot: nobody can deliver these again."""
        for topic in list(self.broker.topics.values()):
            for name, _ in self.broker.machine.log.sequences(topic.state.id):
                if name.startswith(NAME) and not name.startswith(f"{NAME}{self._boot}."):
                    with contextlib.suppress(NotFound, Busy):
                        await self.broker.engine.submit(DeduplicationForget(topic.state.id, name))

    # -- requests --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        assert self._door is not None
        bell = self.lend()
        while True:
            try:
                with await bell.take(self._door, 1) as requests:
                    await self._answer(requests.tobytes()[0])
            except Corrupt as error:
                LOG.warning("a request for ingest is damaged: %s", error)
                await asyncio.sleep(RETRY_S)
            except Closed as error:
                LOG.warning("no more producers are let in: %s", error)
                return

    async def _answer(self, request: bytes) -> None:
        try:
            asked = json.loads(request)
            topic, token = str(asked["topic"]), str(asked["reply"])
            if not (token.isalnum() and len(token) <= 32):
                raise ValueError(f"{token!r} names no reply")
        except (ValueError, KeyError, TypeError) as error:
            LOG.warning("a request for ingest that cannot be read: %s", error)
            return
        answer: dict[str, str]
        try:
            async with asyncio.timeout(ANSWER_S):
                segment = await self._segment(topic)
            answer = {"queue": segment.queue_name, "account": self.names.account(segment.identity).name}
        except HoldfastError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except TimeoutError:
            answer = {"error": "Timeout", "text": f"{topic} could not be opened in {ANSWER_S:.0f} s"}
        try:
            put_file(self.names.reply(token), json.dumps(answer).encode())
        except HoldfastError as error:
            LOG.warning("a producer could not be answered: %s", error)
        asyncio.get_running_loop().call_later(REPLY_S, self._take_away, self.names.reply(token))

    @staticmethod
    def _take_away(reply: Path) -> None:
        with contextlib.suppress(OSError, HoldfastError):
            if read_own(reply) is not None:
                reply.unlink(missing_ok=True)

    async def _segment(self, name: str) -> Segment:
        """The topic's queue, made if it has none."""
        topic = await self.broker.ensure_topic(name)
        found = self._segments.get(topic.state.id)
        if found is not None:
            return found
        if len(self._segments) >= self._topics_max:
            raise Misuse(f"{self._topics_max} topics have an ingest queue already; publish over the network")
        self.broker.store.admit(0)
        segment = Segment(self, topic, f"{self._boot}.{self.broker.random.token(8).hex()}")
        await segment.create(self._capacity)
        self._segments[topic.state.id] = segment
        segment.start(left_behind=False)
        return segment

    # -- endings ---------------------------------------------------------------------------------------

    def _settled(self, applied: Applied) -> None:
        for notice in applied.notices:
            if isinstance(notice, TopicGone) and notice.topic in self._segments:
                segment = self._segments[notice.topic]
                self._spawn(self.ended(segment, NotFound(f"{segment.topic.name} was deleted")))

    async def ended(self, segment: Segment, error: HoldfastError) -> None:
        """A segment cannot go on."""
        if self._segments.get(segment.topic.state.id) is segment:
            del self._segments[segment.topic.state.id]
            await segment.end(error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
