"""`holdfast.Queue`: messages between processes that survive the death of any of them."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from holdfast import _core
from holdfast._core import Message, Messages
from holdfast.arguments import checked_whole, require_seconds, require_text
from holdfast.errors import (
    Closed,
    Corrupt,
    Exists,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NotFound,
    Timeout,
)
from holdfast.memory.findings import faults_of
from holdfast.memory.places import checked_mode, gid_of, names_of, place, require_same
from holdfast.memory.stats import QueueStats, Recovered, stats_of
from holdfast.memory.waiter import Signal, close_signal, own_signal, wait_until, waiter

if TYPE_CHECKING:
    from typing_extensions import Buffer

Delivery = Literal["at-least-once", "at-most-once"]
Checksum = Literal["header", "full"]
T = TypeVar("T")

CAPACITY_MAX = 256 << 30
PARTICIPANTS_MAX = 1023


def _deliveries_until(
    max_deliveries: int | None, dead_letter: str | None, delivery: str, name: str
) -> int | None:
    """Check `max_deliveries` against the other parameters; return it.

    Raises:
        Misuse: it does not fit them.
    """
    if (max_deliveries is None) != (dead_letter is None):
        raise Misuse(
            "max_deliveries and dead_letter need each other: give both, so that a message with too many "
            "deliveries has a queue to go to, or none"
        )
    if max_deliveries is None:
        return None
    max_deliveries = checked_whole("max_deliveries", max_deliveries)
    require_text("dead_letter", dead_letter)
    if not 1 <= max_deliveries <= 250:
        raise Misuse(f"max_deliveries must be 1 to 250, not {max_deliveries}")
    if delivery == "at-most-once":
        raise Misuse("at-most-once delivers nothing twice: max_deliveries has no meaning there")
    if dead_letter == name:
        raise Misuse(f"queue {name} cannot be its own dead-letter queue")
    return max_deliveries


class Queue(_core.Queue):
    """A many-producer, many-consumer queue of byte messages between the processes of one machine.

    A process may die at any instruction: every message that was put still has exactly one owner. A message of
    a dead consumer goes to another one, marked as `redelivered`. Consumers pass over a half-written message
    of a dead producer. There is no daemon: living participants repair what is in their way.

    Threads may share one `Queue`: each call is atomic among them, and waiting calls let the others run.
    After `fork()` the child must open the queue again; pickling a `Queue` does that by itself.

    Example:
        >>> from holdfast import Queue
        >>> with Queue.create("readings", capacity=1 << 20) as q:
        ...     q.put(b"21.5")
        ...     with q.get(timeout=1.0) as message:
        ...         print(bytes(message.data), message.redelivered)
        b'21.5' 0
        >>> Queue.unlink("readings")
    """

    _signal: Signal | None = None

    @classmethod
    def create(
        cls,
        name: str,
        *,
        capacity: int = 16 << 20,
        delivery: Delivery = "at-least-once",
        participants: int = 64,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        stall_limit: float | None = None,
        checksum: Checksum = "header",
        mode: int = 0o600,
        group: str | int | None = None,
        exist_ok: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Create a queue and attach to it.

        All its memory is allocated now: later it cannot run out.

        Args:
            name: 1 to 100 of `A-Z a-z 0-9 . _ -`.
            capacity: bytes, rounded up to a power of two. A message may have half of it, less 32 bytes.
            delivery: for messages of a dead consumer: `"at-least-once"` delivers them to another consumer,
                `"at-most-once"` drops them.
            participants: attachments at one time, at most 1023.
            max_deliveries: after that many deliveries without a settlement a message goes to `dead_letter`.
            dead_letter: the name of the queue for such messages; it is created if it is not there.
            stall_limit: seconds after which consumers may pass over a living writer's unfinished message.
                The writer notices and puts its message again. None: a slow writer is waited for.
            checksum: `"header"` checks each message's header, `"full"` the payload, too.
            mode, group: for queues that several users share, for example `0o660` and a group.
            exist_ok: open the queue if it exists with the same parameters.
            directory: where the segment stands; default `$HOLDFAST_RUNTIME_DIR`, else `/dev/shm`.

        Raises:
            Exists: there is a queue of that name.
            LayoutMismatch: there is one, with other parameters (`exist_ok`).
            NoSpace: no room for it.
            Misuse: a parameter is not valid.

        Example:
            >>> from holdfast import Queue
            >>> q = Queue.create("work", capacity=1 << 20, max_deliveries=3, dead_letter="work.dead")
            >>> q.stats().capacity_bytes
            1048576
            >>> q.detach(); Queue.unlink("work"); Queue.unlink("work.dead")
        """
        require_text("the name of a queue", name)
        capacity = checked_whole("capacity", capacity, " of bytes, such as 1 << 20")
        participants = checked_whole("participants", participants)
        mode = checked_mode(mode)
        if not 1 <= capacity <= CAPACITY_MAX or not 1 <= participants <= PARTICIPANTS_MAX:
            raise Misuse(
                f"queue {name}: a capacity of {capacity} bytes with {participants} participants is not "
                f"possible; use 256 bytes to 256 GiB and 1 to {PARTICIPANTS_MAX}"
            )
        if delivery not in ("at-least-once", "at-most-once"):
            raise Misuse(f'delivery must be "at-least-once" or "at-most-once", not {delivery!r}')
        if checksum not in ("header", "full"):
            raise Misuse(f'checksum must be "header" or "full", not {checksum!r}')
        max_deliveries = _deliveries_until(max_deliveries, dead_letter, delivery, name)
        if stall_limit is not None:
            require_seconds("stall_limit", stall_limit, 0.001, 1e6)
        where = place(directory)
        gid = gid_of(group)
        with contextlib.ExitStack() as undo:
            if dead_letter is not None:
                with contextlib.suppress(Exists):
                    cls.create(
                        dead_letter,
                        capacity=capacity,
                        participants=participants,
                        checksum=checksum,
                        mode=mode,
                        group=group,
                        directory=where,
                    ).detach()
                    undo.callback(_undo_dead_letter, where, name, dead_letter)
            try:
                _core.create_queue(
                    where,
                    name,
                    capacity=capacity,
                    participants=participants,
                    at_most_once=delivery == "at-most-once",
                    max_deliveries=max_deliveries or 0,
                    dead_letter=dead_letter or "",
                    stall_limit_ms=0 if stall_limit is None else round(stall_limit * 1000),
                    full_checksum=checksum == "full",
                    mode=mode,
                    group=gid,
                )
            except Exists:
                if not exist_ok:
                    raise
            undo.pop_all()
        self = cls(where, name)
        if exist_ok:
            self._compare(
                capacity, delivery, participants, max_deliveries, dead_letter, stall_limit, checksum
            )
        return self

    def _compare(
        self,
        capacity: int,
        delivery: str,
        participants: int,
        max_deliveries: int | None,
        dead_letter: str | None,
        stall_limit: float | None,
        checksum: str,
    ) -> None:
        found = _core.inspect_attached(self)["params"]
        granules = max(4, -(-capacity // 64))
        wanted = {
            "capacity": 64 << (granules - 1).bit_length(),
            "participants": participants,
            "delivery": delivery,
            "max_deliveries": max_deliveries or 0,
            "stall_limit_ms": None if stall_limit is None else round(stall_limit * 1000),
            "checksum": checksum,
            "dead_letter": dead_letter,
        }
        try:
            require_same("queue", self.name, found, wanted)
        except LayoutMismatch:
            self.detach()
            raise

    @classmethod
    def open(cls, name: str, *, adopt: bool = False, directory: str | os.PathLike[str] | None = None) -> Self:
        """Attach to a queue that exists.

        Args:
            name: as given to `create`.
            adopt: accept a queue from before the last boot (only where `directory` is on a disk). The disk
                may have lost bytes: the structure is checked, payloads only with `checksum="full"`.
            directory: as in `create`.

        Raises:
            NotFound, Denied, LayoutMismatch, Corrupt, Stale, TooManyParticipants.

        Example:
            >>> from holdfast import Queue
            >>> a = Queue.create("pair", capacity=1 << 16)
            >>> b = Queue.open("pair")
            >>> b.put(b"x"); a.get_bytes()
            b'x'
            >>> a.detach(); b.detach(); Queue.unlink("pair")
        """
        require_text("the name of a queue", name)
        where = place(directory)
        if adopt:
            seen = _core.inspect(where, name)
            faults = faults_of(seen, stale_is_fine=True)
            if faults and "queue" in seen:  # of anything before that, opening it tells
                raise Corrupt(f"queue {name} cannot be adopted: {'; '.join(faults)}")
        return cls(where, name, adopt)

    @staticmethod
    def unlink(name: str, *, directory: str | os.PathLike[str] | None = None) -> None:
        """Remove the name. Processes that are attached keep the queue until they detach.

        Example:
            >>> from holdfast import Queue
            >>> Queue.create("gone", capacity=1 << 16).detach()
            >>> Queue.unlink("gone")
        """
        require_text("the name of a queue", name)
        _core.unlink_queue(place(directory), name)

    @staticmethod
    def list(*, directory: str | os.PathLike[str] | None = None) -> builtins.list[str]:
        """Return the names of the queues that exist.

        Example:
            >>> from holdfast import Queue
            >>> Queue.create("seen", capacity=1 << 16).detach()
            >>> "seen" in Queue.list()
            True
            >>> Queue.unlink("seen")
        """
        return names_of("queue", directory)

    def stats(self) -> QueueStats:
        """Return contents, participants and counters of the queue.

        Example:
            >>> from holdfast import Queue
            >>> q = Queue.create("looked-at", capacity=1 << 16)
            >>> q.put(b"x")
            >>> q.stats().ready
            1
            >>> q.detach(); Queue.unlink("looked-at")
        """
        seen = _core.inspect_attached(self)
        if seen["queue"]["fault"] is not None:
            raise Corrupt(f"queue {self.name} is damaged: {faults_of(seen)[0]}")
        return stats_of(self.name, seen, self._dead_letter_blocked)

    def check(self) -> builtins.list[str]:
        """Check every block; return the faults in words (empty: it is sound).

        Example:
            >>> from holdfast import Queue
            >>> q = Queue.create("sound", capacity=1 << 16)
            >>> q.check()
            []
            >>> q.detach(); Queue.unlink("sound")
        """
        return faults_of(_core.inspect_attached(self, blocks_max=1 << 40))

    def recover(self) -> Recovered:
        """Recover after all dead participants, now.

        It is never needed: a participant that is blocked does it.

        Example:
            >>> from holdfast import Queue
            >>> q = Queue.create("tidy", capacity=1 << 16)
            >>> q.recover()
            Recovered(skipped=0, handed_on=0, released=0)
            >>> q.detach(); Queue.unlink("tidy")
        """
        return Recovered(**self._recover())

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the queue is closed.

        Each is settled when the loop asks for the next one. A loop that ends early gives its last message
        back; settle it before if it was processed.

        Example:
            >>> from holdfast import Queue
            >>> q = Queue.create("stream", capacity=1 << 16)
            >>> q.put_many([b"a", b"b"]); q.close()
            >>> [bytes(message.data) for message in q]
            [b'a', b'b']
            >>> q.detach(); Queue.unlink("stream")
        """
        while True:
            try:
                message = self.get()
            except Closed:
                return
            with message:
                yield message

    # asyncio

    async def aput(self, data: Buffer, timeout: float | None = None) -> None:
        """Put as `put` does, without blocking the event loop.

        Example:
            >>> import asyncio
            >>> from holdfast import Queue
            >>> async def main():
            ...     q = Queue.create("async", capacity=1 << 16)
            ...     await q.aput(b"x")
            ...     with await q.aget() as message:
            ...         print(bytes(message.data))
            ...     q.detach(); Queue.unlink("async")
            >>> asyncio.run(main())
            b'x'
        """
        await self._wait(True, timeout, lambda: self.put(data, 0))

    async def aput_many(self, messages: Iterable[Buffer], timeout: float | None = None) -> None:
        """Put as `put_many` does, without blocking the event loop."""
        rest = [*messages]
        done = 0

        def attempt() -> None:
            nonlocal rest, done
            try:
                self.put_many(rest, 0)
            except HoldfastError as error:
                rest = rest[error.done :]
                done += error.done
                error.done = done
                raise

        try:
            await self._wait(True, timeout, attempt)
        except Timeout as error:
            error.done = done
            raise

    async def aget(self, timeout: float | None = None) -> Message:
        """Get as `get` does, without blocking the event loop. A cancelled `aget` has taken nothing."""
        return await self._wait(False, timeout, lambda: self.get(0))

    async def aget_many(self, count: int, timeout: float | None = None) -> Messages:
        """Get as `get_many` does, without blocking the event loop."""
        return await self._wait(False, timeout, lambda: self.get_many(count, 0))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield as `__iter__` does, in `async for`."""
        while True:
            try:
                message = await self.aget()
            except Closed:
                return
            with message:
                yield message

    async def _wait(self, putting: bool, timeout: float | None, attempt: Callable[[], T]) -> T:
        return await wait_until(self, putting, timeout, attempt)

    # other event loops

    def fileno(self) -> int:
        """Return a file descriptor that is readable when `get(timeout=0)` may succeed.

        It is for `select` and the like. Call `arm()`, get until `Empty`, then wait for the descriptor;
        repeat.

        Example:
            >>> import select
            >>> from holdfast import Queue
            >>> q = Queue.create("polled", capacity=1 << 16)
            >>> q.arm()
            >>> q.put(b"x")
            >>> bool(select.select([q], [], [], 5.0)[0])
            True
            >>> q.detach(); Queue.unlink("polled")
        """
        return self._own_signal().fd

    def _own_signal(self) -> Signal:
        return own_signal(self, "Queue.fileno()", "detach the queue and open it again with Queue.open()")

    def arm(self) -> None:
        """Make `fileno()` not readable until something happens after this call.

        It also becomes readable after 50 ms without a change: a get then finds messages of dead consumers.
        """
        signal = self._own_signal()
        signal.clear()
        waiter().watch(self, False, self._listen(False), False, signal.set)

    def detach(self) -> None:
        """Detach this process. Messages that it still holds go back.

        Raises:
            Misuse: views of message data are alive, or other threads are inside a call.
        """
        super().detach()
        close_signal(self)

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __del__(self) -> None:
        close_signal(self)

    def __reduce__(self) -> tuple[Callable[[str, str], Queue], tuple[str, str]]:
        return _reopen, (self.directory, self.name)

    def __repr__(self) -> str:
        return f"<holdfast.Queue {self.name!r}{'' if self.attached else ' (detached)'}>"


def _undo_dead_letter(where: str, name: str, dead_letter: str) -> None:
    """Remove a dead-letter queue whose queue was not created, unless another process created it meanwhile."""
    with contextlib.suppress(HoldfastError):
        if _core.inspect(where, name)["params"]["dead_letter"] == dead_letter:
            return
    with contextlib.suppress(NotFound):
        _core.unlink_queue(where, dead_letter)


def _reopen(directory: str, name: str) -> Queue:
    return Queue.open(name, directory=directory)


__all__ = ["Message", "Messages", "Queue"]
