"""`holdfast.Channel`: buffers change hands between two processes, and the newest data always get in."""

from __future__ import annotations

import builtins
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from holdfast import _core
from holdfast._core import Displaced, Handle, Item, Loan, Pushed
from holdfast.arguments import checked_whole, require_text
from holdfast.errors import Closed, Empty, Exists, Full, HoldfastError, LayoutMismatch, Misuse, NotFound
from holdfast.memory.channel_stats import ChannelStats, channel_faults, channel_stats_of
from holdfast.memory.places import checked_mode, gid_of, names_of, place, require_same
from holdfast.memory.typed import Layout, LoanedArray
from holdfast.memory.waiter import Signal, close_signal, own_signal, wait_until, waiter

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

PRODUCERS_MAX = 16
PRIORITIES_MAX = 8
ATTEMPTS = 100
"""How often `create(exist_ok=True)` tries again, where others remove the channel at the same moment."""
LAPS = 1000
"""How often a pop may be overtaken by pushes before it counts as starved."""


class _Role:
    """The common part of both roles: their end, and a descriptor for other event loops."""

    _signal: Signal | None = None

    def fileno(self) -> int:
        """Return a file descriptor that is readable when it is worth to try again.

        Call `arm()`, try with `timeout=0`, then wait for the descriptor; repeat.
        """
        return self._own_signal().fd

    def arm(self) -> None:
        """Make `fileno()` not readable until something happens after this call, at most 50 ms."""
        signal = self._own_signal()
        signal.clear()
        role: Any = self
        waiter().watch(role, False, role._listen(False), False, signal.set)

    def close(self) -> None:
        """Give up the role. Buffers that the program still looks at stay out of circulation."""
        core: Any = super()
        core.close()
        close_signal(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own_signal(self) -> Signal:
        role: Any = self
        if not role.attached:
            raise Closed(f"this role of channel {role.name} was closed, or made before fork(); take it again")
        return own_signal(self, "fileno()", "close the role and take it again")

    def __del__(self) -> None:
        close_signal(self)


class ChannelProducer(_Role, _core.ChannelProducer):
    """A process that pushes into a channel; `Channel.producer()` returns it.

    `push` copies bytes, or pushes a loan. Without overflow, `timeout` bounds the wait for a free slot, in
    seconds: 0 raises `Full` at once, another one `Timeout` when it is over. With overflow no push waits.

    Example:
        >>> from holdfast import Channel
        >>> channel = Channel.create("frames", slots=2, slot_size=64)
        >>> producer, consumer = channel.producer(), channel.consumer()
        >>> for frame in (b"one", b"two", b"three"):
        ...     pushed = producer.push(frame)
        >>> bytes(pushed.displaced.data)
        b'one'
        >>> with consumer.pop() as item:
        ...     bytes(item.data), item.lost
        (b'two', 1)

        A loan is filled in place. An exception inside gives the buffer back. If other views of it are alive
        at the end of the `with`, nothing is pushed.

        >>> with producer.loan(5) as buffer:
        ...     buffer[:] = b"hello"

        The consumer sees all of a batch at once. A callback gets the displaced data, after the push.

        >>> gone = []
        >>> batch = producer.push_batch([b"a", b"b"], lambda each: gone.append(bytes(each.data)))
        >>> gone
        [b'three', b'hello']
        >>> producer.cancel(batch[1].handle), producer.cancel(batch[1].handle)
        (True, False)
        >>> channel.close(); Channel.unlink("frames")
    """

    async def apush(self, data: Buffer, timeout: float | None = None, priority: int | None = None) -> Pushed:
        """Push as `push` does, without blocking the event loop."""
        return await wait_until(self, True, timeout, lambda: self.push(data, 0, priority), urgent=False)

    async def apush_batch(
        self,
        items: Iterable[Buffer],
        on_displaced: Callable[[Displaced], object] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
    ) -> list[Pushed]:
        """Push as `push_batch` does, without blocking the event loop."""
        batch = [*items]
        called = False

        def call(displaced: Displaced) -> None:
            nonlocal called
            called = True
            if on_displaced is not None:
                on_displaced(displaced)

        def attempt() -> builtins.list[Pushed] | HoldfastError:
            try:
                return self.push_batch(batch, None if on_displaced is None else call, 0, priority)
            except (Full, Empty) as error:
                if not called:
                    raise
                return error  # of the callback: the batch is pushed

        result = await wait_until(self, True, timeout, attempt, urgent=False)
        if isinstance(result, HoldfastError):
            raise result
        return result

    def __repr__(self) -> str:
        return f"<holdfast.ChannelProducer {self.name!r}{'' if self.attached else ' (closed)'}>"


class TypedProducer(ChannelProducer):
    """The producer of a typed channel: it takes arrays, and lends buffers as arrays."""

    _layout: Layout

    def push(self, data: Any, timeout: float | None = None, priority: int | None = None) -> Pushed:
        """Push an array, or a loan."""
        return super().push(self._checked(data), timeout, priority)

    def push_batch(
        self,
        items: Iterable[Any],
        on_displaced: Callable[[Displaced], object] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
    ) -> list[Pushed]:
        """Push several arrays or loans, all at once."""
        return super().push_batch([self._checked(each) for each in items], on_displaced, timeout, priority)

    def loan(self, size: int | None = None, timeout: float | None = None, priority: int = 0) -> Any:
        """Lend a buffer that is used like an array."""
        if size is not None:
            raise Misuse(f"channel {self.name} is typed: a loan has the size of its dtype and shape")
        return LoanedArray(super().loan(None, timeout, priority))

    def _checked(self, data: Any) -> Any:
        if isinstance(data, LoanedArray):
            return data.loan
        return data if isinstance(data, Loan) else self._layout.checked(data, f"channel {self.name}")


class ChannelConsumer(_Role, _core.ChannelConsumer):
    """The one process that pops from a channel; `Channel.consumer()` returns it.

    `item.data` is a read-only view of the pushed length, `item.lost` the number of data that were overwritten
    before it. A view or array that lives longer than the `with` keeps the buffer out of circulation.
    `behind` tells without a pop how many data were pushed: more than `slots` means that some are lost.
    `pop(timeout=0)` raises `Empty` at once; with another timeout, in seconds, it raises `Timeout`.

    Example:
        >>> from holdfast import Channel
        >>> with Channel.create("views", slots=2, slot_size=8) as channel:
        ...     producer, consumer = channel.producer(), channel.consumer()
        ...     _ = producer.push(b"21.5")
        ...     with consumer.pop(timeout=1.0) as item:
        ...         bytes(item.data)
        b'21.5'
        >>> Channel.unlink("views")
    """

    async def apop(self, timeout: float | None = None) -> Item:
        """Pop as `pop` does, without blocking the event loop. A cancelled `apop` has taken nothing.

        Example:
            >>> import asyncio
            >>> from holdfast import Channel
            >>> async def main():
            ...     with Channel.create("async-views", slots=2, slot_size=8) as channel:
            ...         await channel.producer().apush(b"x")
            ...         with await channel.consumer().apop() as item:
            ...             print(bytes(item.data))
            >>> asyncio.run(main())
            b'x'
            >>> Channel.unlink("async-views")
        """
        return await wait_until(self, False, timeout, lambda: self.pop(0), urgent=False)

    def __iter__(self) -> Iterator[Item]:
        """Yield data for ever; each is released when the loop asks for the next one."""
        while True:
            with self.pop() as item:
                yield item

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yield as `__iter__` does, in `async for`."""
        while True:
            with await self.apop() as item:
                yield item

    def __repr__(self) -> str:
        return f"<holdfast.ChannelConsumer {self.name!r}{'' if self.attached else ' (closed)'}>"


class Channel:
    """Buffers change hands from producers to a consumer; the newest data always get in.

    A push never waits for the consumer: when the ring is full, the oldest datum goes back to the producer.
    Data are written and read in place. Either process may die at any instruction: each buffer still has
    exactly one owner, and the next producer or consumer continues.

    A `Channel` itself has no role: `producer()` and `consumer()` take one. One process may have both.

    Example:
        >>> from holdfast import Channel
        >>> with Channel.create("live", slots=4, slot_size=1 << 10) as channel:
        ...     producer, consumer = channel.producer(), channel.consumer()
        ...     _ = producer.push(b"21.5")
        ...     with consumer.pop(timeout=1.0) as item:
        ...         print(bytes(item.data), item.lost)
        b'21.5' 0
        >>> Channel.unlink("live")

        Several producers push into one channel, each with priorities of its own: data of the highest
        priority come first.

        >>> with Channel.create("alarms", slots=4, slot_size=64, producers=2, priorities=2) as channel:
        ...     left, right, consumer = channel.producer(), channel.producer(), channel.consumer()
        ...     _ = left.push(b"21.5"), right.push(b"door open", priority=1)
        ...     for _ in range(2):
        ...         with consumer.pop() as item:
        ...             print(bytes(item.data), item.producer, item.priority)
        b'door open' 1 1
        b'21.5' 0 0
        >>> Channel.unlink("alarms")
    """

    _loop = False

    def __init__(self, directory: str, name: str, adopt: bool = False) -> None:
        self.name = name
        self.directory = directory
        self._segment: _core.ChannelSegment | None = _core.ChannelSegment(directory, name, adopt)
        self._params = self._segment.params
        if self._loop and not self._params["loop"]:
            raise LayoutMismatch(f"channel {name} is not a loop; open it with Channel.open()")
        self._roles: weakref.WeakSet[ChannelProducer | ChannelConsumer] = weakref.WeakSet()

    @classmethod
    def create(
        cls,
        name: str,
        *,
        slots: int,
        slot_size: int | None = None,
        overflow: bool = True,
        loans: int | None = None,
        holds: int = 4,
        laps: int = LAPS,
        dtype: Any = None,
        shape: int | tuple[int, ...] | None = None,
        producers: int = 1,
        priorities: int = 1,
        mode: int = 0o600,
        group: str | int | None = None,
        exist_ok: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Create a channel and open it.

        All its memory is allocated now: `slots + loans + holds` buffers for each producer and priority.

        Args:
            name: 1 to 100 of `A-Z a-z 0-9 . _ -`.
            slots: data that the ring holds.
            slot_size: bytes of a buffer; a datum may have fewer. Not needed with `dtype`.
            overflow: a push into a full ring displaces the oldest datum. False: it waits for a free slot.
            loans: buffers that the producer's program has at once: loans, and displaced data that it keeps.
                A batch needs one for each datum. Default: `slots + 2`.
            holds: items that the consumer's program has at once, those with live views included.
            laps: how often the producer may overtake one pop before the pop starts anew.
            dtype, shape: each datum is a numpy array of that type and shape.
            producers: processes that push, at most 16. Each has a ring and buffers of its own, so that none
                waits for another, and a push displaces only data of its own producer.
            priorities: at most 8, from 0, the default of `push`, to the highest, which is popped first.
                Each has a ring of its own.
            mode, group, exist_ok, directory: as in `Queue.create`.

        Raises:
            Exists: there is a channel of that name.
            LayoutMismatch: there is one, with other parameters (`exist_ok`).
            NoSpace: no room for it.
            Misuse: a parameter is not valid.

        Example:
            >>> from holdfast import Channel
            >>> channel = Channel.create("typed", slots=4, dtype="f4", shape=(2, 3))
            >>> producer, consumer = channel.producer(), channel.consumer()
            >>> with producer.loan() as frame:
            ...     frame[:] = 1.5
            >>> with consumer.pop() as item:
            ...     item.array.shape, float(item.array.sum())
            ((2, 3), 9.0)
            >>> channel.close(); Channel.unlink("typed")
        """
        require_text("the name of a channel", name)
        if not isinstance(overflow, bool):
            raise Misuse(f"overflow must be True or False, not {overflow!r}")
        layout = Layout.of(dtype, shape)
        slots = checked_whole("slots", slots)
        wanted: dict[str, Any] = {
            "slots": slots,
            "slot_size": _slot_size(name, slot_size, layout),
            "loans": slots + 2 if loans is None else checked_whole("loans", loans),
            "holds": checked_whole("holds", holds),
            "overflow": overflow,
            "laps": checked_whole("laps", laps),
            "producers": checked_whole("producers", producers),
            "priorities": checked_whole("priorities", priorities),
            "loop": cls._loop,
            "dtype": "" if layout is None else layout.dtype_text,
            "shape": "" if layout is None else layout.shape_text,
        }
        mode = checked_mode(mode)
        if not 1 <= wanted["laps"] < 1 << 32:
            raise Misuse(f"laps must be at least 1, and below 2**32, not {laps}")
        _require_possible(name, wanted)
        where = place(directory)
        gid = gid_of(group)
        for attempt in range(ATTEMPTS):
            with contextlib.suppress(Exists) if exist_ok else contextlib.nullcontext():
                _core.create_channel(where, name, **wanted, mode=mode, group=gid)
            try:
                self = cls(where, name)
                break
            except NotFound:  # another process has just removed the one that existed
                if attempt == ATTEMPTS - 1:
                    raise
        require_same("channel", name, self._params, wanted)
        return self

    @classmethod
    def open(cls, name: str, *, adopt: bool = False, directory: str | os.PathLike[str] | None = None) -> Self:
        """Open a channel that exists. Nothing in it changes until a role is taken.

        Args:
            name: as given to `create`.
            adopt: accept a channel from before the last boot (only where `directory` is on a disk).
            directory: as in `create`.

        Raises:
            NotFound, Denied, LayoutMismatch, Corrupt, Stale.
        """
        require_text("the name of a channel", name)
        return cls(place(directory), name, adopt)

    @staticmethod
    def unlink(name: str, *, directory: str | os.PathLike[str] | None = None) -> None:
        """Remove the name. Processes that have the channel open keep it until they close it."""
        require_text("the name of a channel", name)
        _core.unlink_channel(place(directory), name)

    @staticmethod
    def list(*, directory: str | os.PathLike[str] | None = None) -> builtins.list[str]:
        """Return the names of the channels that exist.

        Example:
            >>> from holdfast import Channel
            >>> Channel.create("seen", slots=1, slot_size=8).close()
            >>> "seen" in Channel.list()
            True
            >>> Channel.unlink("seen")
        """
        return names_of("channel", directory)

    def producer(self, number: int | None = None) -> ChannelProducer:
        """Take a producer's role. It stays taken until `close()`, or until this process dies.

        The push in which a dead producer stopped is repaired first.

        Args:
            number: which one, from 0; None: the first that no living process has.

        Raises:
            Misuse: a living process has the role; the text names its pid.
            TooManyParticipants: all 64 slots are held.
        """
        layout = self._layout()
        which = () if number is None else (self._checked_number(number),)
        if layout is None:
            role = ChannelProducer(self._open_segment(), *which)
        else:
            role = TypedProducer(self._open_segment(), *which)
            role._layout, role._as_array = layout, layout.array
        self._roles.add(role)
        return role

    def consumer(self) -> ChannelConsumer:
        """Take the consumer's role. It stays taken until `close()`, or until this process dies.

        A datum that a dead consumer had popped is not delivered again; its buffer goes back to the producer.

        Raises:
            Misuse: a living process has the role; the text names its pid.
            TooManyParticipants: all 64 slots are held.
        """
        layout = self._layout()
        role = ChannelConsumer(self._open_segment())
        if layout is not None:
            role._as_array = layout.array
        self._roles.add(role)
        return role

    def _checked_number(self, number: int) -> int:
        producers = self._params["producers"]
        if 0 <= checked_whole("number", number) < producers:
            return number
        raise Misuse(
            f"channel {self.name} has no producer {number}: it has {producers}, counted from 0. Create it "
            "with more `producers`"
        )

    def _layout(self) -> Layout | None:
        dtype = self._params["dtype"]
        return Layout.parse(dtype, self._params["shape"], self._params["slot_size"]) if dtype else None

    def _open_segment(self) -> _core.ChannelSegment:
        if self._segment is None:
            raise Misuse(f"channel {self.name} was closed; call Channel.open() to use it again")
        return self._segment

    def stats(self) -> ChannelStats:
        """Return contents, roles and counters of the channel.

        Example:
            >>> from holdfast import Channel
            >>> with Channel.create("looked-at", slots=2, slot_size=8) as channel:
            ...     _ = channel.producer().push(b"x")
            ...     channel.stats().ready
            1
            >>> Channel.unlink("looked-at")
        """
        return channel_stats_of(self.name, self._open_segment().inspect())

    def check(self) -> builtins.list[str]:
        """Check every slot and buffer; return the faults in words (empty: it is sound).

        Example:
            >>> from holdfast import Channel
            >>> with Channel.create("sound", slots=2, slot_size=8) as channel:
            ...     channel.check()
            []
            >>> Channel.unlink("sound")
        """
        return channel_faults(self._open_segment().inspect())

    def close(self) -> None:
        """Close the channel here, and the roles that were taken with this object."""
        with contextlib.ExitStack() as each:  # a role that is busy does not keep the others open
            for role in [*self._roles]:
                each.callback(role.close)
        self._segment = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Channel], tuple[str, str, type[Channel]]]:
        return _reopen, (self.directory, self.name, type(self))

    def __repr__(self) -> str:
        closed = "" if self._segment is not None else " (closed)"
        return f"<holdfast.{type(self).__name__} {self.name!r}{closed}>"


def _slot_size(name: str, slot_size: int | None, layout: Layout | None) -> int:
    if slot_size is not None:
        slot_size = checked_whole("slot_size", slot_size, " of bytes, such as 1 << 20")
    if layout is None:
        if slot_size is None:
            raise Misuse(f"channel {name} needs slot_size, the bytes of a buffer; or dtype and shape")
        return slot_size
    if slot_size not in (None, layout.size):
        raise Misuse(
            f"channel {name}: a datum of {layout.dtype_text} with shape ({layout.shape_text}) has "
            f"{layout.size} bytes, not {slot_size}; leave slot_size out"
        )
    return layout.size


def _require_possible(name: str, wanted: dict[str, Any]) -> None:
    counts = [wanted[key] for key in ("slots", "loans", "holds")]
    if not all(1 <= each <= 1 << 16 for each in counts) or not 1 <= wanted["slot_size"] <= 1 << 31:
        raise Misuse(
            f"channel {name}: slots, loans and holds must be 1 to 65536, and slot_size 1 byte to 2 GiB, not "
            f"{counts[0]}, {counts[1]}, {counts[2]} and {wanted['slot_size']}"
        )
    for key, most in (("producers", PRODUCERS_MAX), ("priorities", PRIORITIES_MAX)):
        if not 1 <= wanted[key] <= (1 if wanted["loop"] else most):
            limit = "must be 1 in a loop" if wanted["loop"] else f"must be 1 to {most}"
            raise Misuse(f"channel {name}: {key} {limit}, not {wanted[key]}")


def _reopen(directory: str, name: str, kind: type[Channel] = Channel) -> Channel:
    return kind.open(name, directory=directory)


__all__ = ["Channel", "ChannelConsumer", "ChannelProducer", "Displaced", "Handle", "Item", "Loan", "Pushed"]
