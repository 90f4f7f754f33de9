"""Drain one ingest queue: its messages are published, confirmed and settled, in that order.

Needs from below: a `Queue` whose taken messages stay this process's until it settles them or dies. The log
must store nothing twice under the name of a segment. Promises upward: a message that was put is stored once.
It is settled, and confirmed to its producer, after it is durable. docs/guide/ingest.md tells why that holds,
whichever process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import _core
from holdfast._core import Message, parse_entry
from holdfast.broker import MESSAGE_BYTES, RUN_BYTES, Topic
from holdfast.errors import (
    Busy,
    Closed,
    Corrupt,
    Empty,
    Fenced,
    Full,
    HoldfastError,
    NoQuorum,
    NoSpace,
    QuotaExceeded,
    Timeout,
)
from holdfast.local.account import Account
from holdfast.local.place import identity, names_file
from holdfast.memory import Queue
from holdfast.names import INGEST

if TYPE_CHECKING:
    from holdfast.local.bell import Bell
    from holdfast.local.intake import Ingest

LOG = logging.getLogger("holdfast.ingest")

TAKE = 1024
"""Messages that are taken at once."""
RETRY_S = 0.2
"""Interval of attempts to store after a fault."""
LAST_S = 5.0
"""How long a segment that is left waits for what is under way to the disk."""
STALL_S = 1.0
"""A living producer that is stopped in the middle of a put delays the others by this at most."""
PARTICIPANTS = 256
"""Producers of one topic, and the broker: the last place is never a producer's."""
_HEADER, _GRANULE = 32, 64  # of a block in the queue
_TRANSIENT = (NoSpace, NoQuorum, Busy, Fenced, Full, QuotaExceeded, Timeout)


class Segment:
    """One ingest queue and its account: drained into a topic, in order of positions."""

    def __init__(self, ingest: Ingest, topic: Topic, identity: str) -> None:
        self._ingest = ingest
        self._broker = ingest.broker
        self.topic = topic
        self.identity = identity
        self.name = f"{INGEST}{identity}"
        """The producer's name under which the log deduplicates; the sequence is the position."""
        self.queue_name = ingest.names.queue(topic.name, identity)
        self.queue: Queue | None = None
        self.account: Account | None = None
        self._session = 0
        self._epoch = 0
        self._files: dict[Path, tuple[int, int]] = {}
        """Its files, and which they were."""
        self._taken = -1
        """The highest position that was taken in this life of the broker."""
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._bell: Bell | None = None
        self._largest = 0
        """Bytes of an entry, as its producers were told."""
        self.closing = False
        """Its queue is closed: it is drained to its end, and takes no producers."""
        self.waiting = False
        """Something is in the way of storing."""
        self.used = asyncio.get_running_loop().time()
        """Time of the last request for it, or of the last stored message."""

    # -- its life --------------------------------------------------------------------------------------

    async def create(self, capacity: int, message_bytes_max: int) -> None:
        """Open the session, which may be refused, then make the account, then the queue."""
        await self._open_session()
        info: dict[str, Any] = {
            "topic": self.topic.name,
            "incarnation": self.topic.incarnation.hex(),
            "identity": self.identity,
            "participants": PARTICIPANTS,
            "message_bytes_max": min(MESSAGE_BYTES, message_bytes_max, capacity // 2 - _HEADER),
        }
        self._largest = int(info["message_bytes_max"])
        directory = self._ingest.names.directory
        try:
            self.account = Account.create(self._ingest.names.account(self.identity), info)
            self.queue = Queue.create(
                self.queue_name,
                capacity=capacity,
                participants=PARTICIPANTS,
                stall_limit=STALL_S,
                directory=str(directory),
            )
        except BaseException:
            await self._remove()
            raise
        self._note_files()

    def _note_files(self) -> None:
        names = self._ingest.names
        paths = (names.account(self.identity), names.file(self.queue_name))
        self._files = {path: identity(path.lstat()) for path in paths}

    def adopt(self) -> None:
        """Take over what an earlier broker has left.

        Raises:
            NotFound, Stale, Corrupt: there is nothing to take over.
            TooManyParticipants: try again.
            Denied, LayoutMismatch: it belongs to another user or version.
        """
        names = self._ingest.names
        if self.account is None:
            self.account = Account.open(names.account(self.identity), writable=True)
        self.account.mend()
        self._largest = min(MESSAGE_BYTES, int(self.account.info["message_bytes_max"]))
        self.queue = Queue.open(self.queue_name, directory=str(names.directory))
        self.closing = self.queue.stats().closed
        self._note_files()

    def start(self, left_behind: bool) -> None:
        self._bell = self._ingest.lend()
        self._task = asyncio.get_running_loop().create_task(self._run(left_behind), name=self.queue_name)

    async def stop(self) -> None:
        """Leave the queue to the next broker; an unused one is removed."""
        await self._halt()
        with contextlib.suppress(HoldfastError):
            if (self.closing or self.withdraw()) and self._unused():
                await self.end(Closed("the broker stopped while the queue was unused; open it again"))
                return
        self.leave()
        with contextlib.suppress(HoldfastError):  # it has ended: so has the session
            await self._close_session()

    def withdraw(self) -> bool:
        """Close the queue if it is unused; late messages are drained.

        A producer that attaches looks at the account afterwards. Here the account is written before the
        participants are looked at. So either they are seen here, or they see the withdrawal and ask for
        another queue (I124). If neither were so, `close` would still come in one order with their puts.
        """
        if self.closing or not self._unused():
            return False
        assert self.queue is not None
        assert self.account is not None
        self.account.withdraw(True)
        if not self._unused():
            self.account.withdraw(False)
            return False
        self.closing = True
        self.queue.close()
        return True

    def _unused(self) -> bool:
        """Tell whether it is empty, and no other process is attached."""
        if self.queue is None or self._broker.failure is not None:
            return False
        stats = self.queue.stats()
        others = any(
            each.attached and each.alive and each.slot != self.queue.slot for each in stats.participants
        )
        return not (others or stats.ready or stats.returned or stats.taken or stats.writing)

    def is_there(self) -> bool:
        """Tell whether its files are there: other code may have removed or replaced them."""
        return all(names_file(path, file) for path, file in self._files.items())

    async def _halt(self) -> None:
        self._stopping = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    def leave(self) -> None:
        """Everything stays as it is."""
        if self._bell is not None:
            self._bell.users -= 1
            self._bell = None
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
        self.leave()
        with contextlib.suppress(HoldfastError):
            Queue.unlink(self.queue_name, directory=str(names.directory))
        names.account(self.identity).unlink(missing_ok=True)
        with contextlib.suppress(HoldfastError):  # the topic is gone, or the broker ends: as good
            await self._close_session()
            await self._broker.admin.forget_producer(self.topic.name, self.name)

    # -- its session -----------------------------------------------------------------------------------

    async def _open_session(self) -> None:
        opened = await self._broker.sessions.open_producer(self.topic, self.name)
        self._session, self._epoch = opened.session, opened.epoch

    async def _close_session(self) -> None:
        if self._session:
            session, self._session = self._session, 0
            await self._broker.sessions.close_producer(session)

    # -- draining --------------------------------------------------------------------------------------

    async def _run(self, left_behind: bool) -> None:
        try:
            if left_behind:
                await self._store(*await self._collect())
            assert self.queue is not None
            assert self._bell is not None
            while True:
                messages = await self._bell.take(self.queue, TAKE)
                await self._store(list(messages), messages.tobytes())
        except Closed as error:
            if self._broker.failure is None:
                told = Closed(f"no producer used the ingest queue of {self.topic.name}; open it again")
                await self._ingest.ended(self, told if self.closing else error)
        except HoldfastError as error:
            if self._broker.failure is not None:
                return  # the next broker goes on
            LOG.warning("the ingest queue of %s ends: %s", self.topic.name, error)
            await self._ingest.ended(self, error)
        except Exception as error:  # a mistake in the code: what is in the queue stays for the next broker
            LOG.exception("the ingest queue of %s is not drained any more", self.topic.name)
            if self.account is not None:
                self.account.say(f"{type(error).__name__}: {error}")

    async def _collect(self) -> tuple[list[Message], list[bytes]]:
        """Take the messages that an earlier broker held, in the order of positions.

        The log knows the highest durable position, and takes all below it for stored. So nothing may be
        published before all below it is in hand. Messages of a dead reader come back in any order, and the
        process that hands them on may be slow. But a block is taken for the first time only after all before
        it. So wait until no other process holds a block, and none waits to be taken again. Then everything
        below the highest position in hand is in hand, settled, or never was a message.
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
        """Tell whether another process holds a message, or one waits to be redelivered."""
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
            size, count, damage = 0, 0, None
            most, room = self._broker.limiting.run_most(self.topic)
            for at in range(start, len(messages)):
                if run and (count >= most or size + len(entries[at]) > min(room, RUN_BYTES)):
                    break
                held = self._messages_in(messages[at].position, entries[at])
                if isinstance(held, Corrupt):
                    damage = held
                    break
                count += held
                self._taken = messages[at].position
                run.append((self._taken, 1, entries[at]))
                size += len(entries[at])
            if run:
                await self._broker.limiting.admit_rate(self.topic, count, size)
                await self._publish(run, size)
                last, _, entry = run[-1]
                self.account.confirm(last + (len(entry) + _HEADER + _GRANULE - 1) // _GRANULE)
                for message in messages[start : start + len(run)]:
                    message.settle()
                self.used = asyncio.get_running_loop().time()
                self._ingest.drained(count, size)
                if self._stopping:
                    raise asyncio.CancelledError
            if damage is not None:
                raise damage
            start += len(run)

    def _messages_in(self, position: int, entry: bytes) -> int | Corrupt:
        """Count the messages of an entry; or return why it cannot be stored.

        That ends the queue: confirming the entries behind it would confirm it, too.
        """
        where = f"position {position} of the ingest queue of {self.topic.name}"
        if position <= self._taken:
            return Corrupt(
                f"{where} was redelivered: another process reads the queue; unconfirmed messages may be lost"
            )
        if len(entry) > self._largest:
            return Corrupt(f"{where}: an entry of {len(entry)} bytes; the largest is {self._largest}")
        try:
            return parse_entry(entry).messages
        except Corrupt as error:
            return Corrupt(f"{where}: {error}")

    async def _publish(self, run: list[tuple[int, int, bytes]], size: int) -> None:
        """Publish a run, and wait until it is durable.

        One event at a time: a refused one before an accepted one would be taken for stored, since its
        positions are lower.
        """
        assert self.account is not None
        said = ""
        while True:
            try:
                await self._broker.admit(size)
                if self._session == 0:
                    await self._open_session()
                future = self._broker.publish_entries(self.topic, self._session, self._epoch, self.name, run)
                await _finished(future)
                break
            except _TRANSIENT as error:
                if isinstance(error, Fenced | Busy):
                    self._session = 0
                if str(error) != said:
                    said = str(error)
                    self.account.say(said)
                    self.waiting = True
                    LOG.warning("ingest of %s waits: %s", self.topic.name, said)
                await asyncio.sleep(RETRY_S)
        if said:
            self.account.say("")
            self.waiting = False


async def _finished(future: asyncio.Future[Any]) -> None:
    """Wait for the outcome; a cancelled task waits for it at most `LAST_S`."""
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future], timeout=LAST_S)
        if not future.done() or future.cancelled() or future.exception() is not None:
            raise
