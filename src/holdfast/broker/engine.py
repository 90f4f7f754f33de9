"""The confirm path of an event: submitted, ordered, applied, durable, stable, confirmed.

```
 submit ─► the turn's frame ─► Group.mcast ─► on_deliver: applied, D given ─► the store: written, synced
                                                                                      │ on_durable(D)
 future done  ◄─ visible advances, effects ◄─ on_stable(position) ◄─ Group.hold(position)
```

Promises upward: a submitter gets an outcome only when a crash cannot take it back (**I60**). Outcomes arrive
in the order of their events (**I61**). When the engine ends, every pending request fails with the reason
(**I62**). Publishers that wait for room leave in the order of their calls (**I64**).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from holdfast._core import Frame
from holdfast.broker.events import Event
from holdfast.broker.log_time import LogClock
from holdfast.broker.machine import Applied, Machine
from holdfast.errors import Closed, Full, HoldfastError
from holdfast.group import BEGINNING, Group, Listener, Member, Position, View
from holdfast.system import Clock

FRAME_BYTES = 1 << 20
"""Size from which on a frame is sent before the turn of the loop ends."""

UNDER_WAY_BYTES = 8 << 20
"""Bytes of this member's frames that are not settled; above this, publishers wait in `room`."""

Missed: TypeAlias = tuple[Position, Member, bytes] | View
Transfer: TypeAlias = Callable[[Position, View], Awaitable[Iterable[Missed]]]
"""Fetches the frames and views that this member missed: after a position, up to its cut."""


class Ledgers(Protocol):
    """The store, as the engine uses it."""

    def applied(self) -> None:
        """Note that a frame was applied: there may be something to write."""

    def set_stable(self, position: Position) -> None:
        """Note that everything up to a position is stable."""

    async def flush(self) -> None:
        """Wait until everything that was applied is durable."""


class Observer(Protocol):
    """The broker, as the engine notifies it."""

    def settled(self, applied: Applied) -> None:
        """Make the entries of a stable frame visible, and let its changes take effect."""

    def ended(self, reason: HoldfastError) -> None:
        """Note that no further frame will be settled."""


@dataclass(slots=True)
class _Inflight:
    """A frame between its delivery and its stability."""

    position: Position
    applied: Applied
    futures: list[asyncio.Future[Any]]
    size: int
    """In bytes, of a frame of this member; 0 for others."""
    began_ns: int


@dataclass(slots=True, eq=False)
class _Place:
    """A place in the queue of publishers that wait for room."""

    woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Engine(Listener):
    """Puts events into frames, and completes their futures when the frames are stable.

    One engine drives one `Machine`; nothing else does.
    """

    def __init__(
        self,
        machine: Machine,
        store: Ledgers,
        group: Group,
        clock: Clock,
        observer: Observer,
        at: Position = BEGINNING,
        unclean: bool = False,
        transfer: Transfer | None = None,
    ) -> None:
        self._machine = machine
        self._store = store
        self._group = group
        self._clock = clock
        self.log_clock = LogClock(clock)
        """The time of frames, and of all that is compared with log time."""
        self._observer = observer
        self._unclean = unclean
        self._transfer = transfer
        self._frame = Frame()
        self._futures: list[asyncio.Future[Any]] = []
        self._flush_scheduled = False
        self._sent: deque[list[asyncio.Future[Any]]] = deque()
        self._inflight: deque[_Inflight] = deque()
        self._unheld: deque[tuple[int, Position]] = deque()
        self._durable_d = machine.log.next_d - 1
        self._under_way = 0
        self._room: deque[_Place] = deque()
        """Publishers that wait, in the order of their calls. The first one leaves first."""
        self._backlog: list[Missed] | None = None
        """Frames and views that were delivered while this member fetches what it missed."""
        self._catching_up: asyncio.Task[None] | None = None
        self.guard: Callable[[Event], Callable[[asyncio.Future[Any]], None] | None] | None = None
        """Called before an event is submitted. It raises if a limit is exceeded, or returns a callback."""
        self._ended: HoldfastError | None = None
        self._refused: HoldfastError | None = None
        self.position = at
        """The last frame or view that was applied."""
        self.stable = at
        self.settling_ms = 0.0
        """Time from the application of the frame that is being settled until now."""

    def log_time_now(self) -> int:
        """Return the time that a frame would have now, in ns. It never goes back."""
        return max(self._machine.log.time, self.log_clock.now_ns())

    # -- submitting ------------------------------------------------------------------------------------

    def submit(self, event: Event) -> asyncio.Future[Any]:
        """Put an event into this turn's frame; its future is done when it is stable.

        Raises:
            Closed: the engine has ended.
        """
        told = None if self.guard is None else self.guard(event)
        body = event.encode()
        future = self.add(lambda frame: frame.event(event.kind, event.version, body))
        if told is not None:
            future.add_done_callback(told)
        return future

    def add(self, put: Callable[[Frame], object]) -> asyncio.Future[Any]:
        """Put one event into this turn's frame, else into the next one.

        Raises:
            Closed: the engine has ended.
        """
        self._require_open()
        try:
            put(self._frame)
        except Full:
            self._flush()
            put(self._frame)
        return self.added(1)[0]

    @property
    def frame(self) -> Frame:
        """The frame of this turn, to be filled in the core. `added` follows at once.

        Raises:
            Closed: the engine has ended.
        """
        self._require_open()
        return self._frame

    def added(self, count: int) -> list[asyncio.Future[Any]]:
        """Return the futures of the last `count` events that were put into `frame`, in order."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(count)]
        self._futures += futures
        if self._frame.size >= FRAME_BYTES:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            loop.call_soon(self._flush_turn)
        return futures

    async def settle(self) -> None:
        """Wait until all events that were submitted so far have an outcome.

        Raises:
            Closed: the engine ended meanwhile.
        """
        self._flush()
        await self._group.drain()
        await self._store.flush()

    @property
    def behind(self) -> bool:
        """Whether more than `UNDER_WAY_BYTES` are under way; publishers should wait in `room`."""
        coming = self._frame.size if self._futures else 0
        return self._under_way + coming > UNDER_WAY_BYTES

    async def room(self) -> None:
        """Wait while the disk is behind.

        Calls return in the order in which they were made (**I64**). A caller that publishes before its next
        `await` publishes in that order, too.
        """
        if self._ended is None and (self._room or self.behind):
            await self._wait_in_room()
        self._require_open()

    async def _wait_in_room(self) -> None:
        place = _Place()
        self._room.append(place)
        try:
            while self._ended is None and (self._room[0] is not place or self.behind):
                place.woken = asyncio.get_running_loop().create_future()
                await place.woken
        finally:
            self._room.remove(place)
            self._wake_first()

    def refuse(self, reason: HoldfastError) -> None:
        """Refuse further events; events that were submitted before still get their outcome.

        An event between the last `settle` and the end of the group would never become stable. The last
        snapshot would wait for it.
        """
        self._refused = reason

    def _require_open(self) -> None:
        reason = self._ended or self._refused
        if reason is not None:
            raise type(reason)(str(reason))

    def _flush_turn(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        if not self._futures:
            return
        futures, self._futures = self._futures, []
        frame = self._frame.take(self.log_clock.now_ns())
        self._sent.append(futures)
        self._under_way += len(frame)
        try:
            self._group.mcast(frame)
        except HoldfastError as error:  # no quorum, the end, or larger than the group carries
            self._sent.pop()
            self._under_way -= len(frame)
            for future in futures:
                _fail(future, error)
            self._wake_first()

    # -- what the group calls --------------------------------------------------------------------------

    def on_view(self, view: View) -> None:
        if self._backlog is not None:
            self._backlog.append(view)
        elif view.is_cut_of(self._group.member) and self._transfer is not None:
            self._backlog = [view]
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up(view))
        elif view.quorate:
            self._apply_view(view)

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        if self._backlog is not None:
            self._backlog.append((pos, member, event))
        else:
            self._apply(pos, member, event)

    def on_stable(self, pos: Position) -> None:
        self.stable = pos
        self._store.set_stable(pos)
        self._settle()

    def on_lost(self, reason: str) -> None:
        self.end(Closed(f"this broker is out of its group: {reason}; open it again"))

    # -- what the store calls --------------------------------------------------------------------------

    def on_durable(self, d: int) -> None:
        """Note that everything up to D is on the disk and can be read."""
        self._durable_d = d
        self._hold()
        self._settle()

    def end(self, reason: HoldfastError) -> None:
        """Fail all pending requests with the reason. No frame is settled after this."""
        if self._ended is not None:
            return
        self._ended = reason
        if self._catching_up is not None:
            self._catching_up.cancel()
        waiting = [*self._inflight_futures(), *(each for sent in self._sent for each in sent), *self._futures]
        self._inflight.clear()
        self._sent.clear()
        self._futures = []
        for future in waiting:
            _fail(future, reason)
        for place in self._room:
            place.wake()
        self._observer.ended(reason)

    @property
    def ended(self) -> HoldfastError | None:
        return self._ended

    @property
    def is_open(self) -> bool:
        """Whether the engine accepts events."""
        return self._ended is None and self._refused is None

    def _inflight_futures(self) -> Iterable[asyncio.Future[Any]]:
        return (future for frame in self._inflight for future in frame.futures)

    def _wake_first(self) -> None:
        """Wake the first publisher in `room`. It wakes the next one when it leaves."""
        if self._room and not self.behind:
            self._room[0].wake()

    # -- applying --------------------------------------------------------------------------------------

    def _apply_view(self, view: View) -> None:
        applied = self._machine.view(view, self._unclean)
        self._unclean = False
        self._track(view.position, applied, [], 0)

    def _apply(self, pos: Position, member: Member, event: bytes) -> None:
        applied = self._machine.apply(pos.view, pos.index, member, event)
        if member == self._group.member and self._sent:
            self._track(pos, applied, self._sent.popleft(), len(event))
        else:
            self._track(pos, applied, [], 0)

    def _track(self, pos: Position, applied: Applied, futures: list[asyncio.Future[Any]], size: int) -> None:
        self.position = pos
        self._inflight.append(_Inflight(pos, applied, futures, size, self._clock.monotonic_ns()))
        self._unheld.append((applied.last_d, pos))
        self._store.applied()
        self._hold()

    def _settle(self) -> None:
        """Settle frames that are stable and durable on this member's disk.

        A frame can be stable before: then a majority of other members holds it.
        """
        while self._inflight:
            frame = self._inflight[0]
            if frame.position > self.stable or frame.applied.last_d > self._durable_d:
                break
            self.settling_ms = (self._clock.monotonic_ns() - frame.began_ns) / 1e6
            self._observer.settled(frame.applied)  # if it fails, the end answers this frame, too (I62)
            self._inflight.popleft()
            self._under_way -= frame.size
            for future, outcome in zip(frame.futures, frame.applied.outcomes, strict=False):
                if future.done():
                    continue  # the caller was cancelled
                if isinstance(outcome, HoldfastError):
                    _fail(future, outcome)
                else:
                    future.set_result(outcome)
        self._wake_first()

    def _hold(self) -> None:
        """Tell the group up to which position this member has applied and stored everything."""
        held: Position | None = None
        while self._unheld and self._unheld[0][0] <= self._durable_d:
            held = self._unheld.popleft()[1]
        if held is not None and self._ended is None:
            self._group.hold(held)

    async def _catch_up(self, cut: View) -> None:
        """Apply the missed frames, then those that were delivered meanwhile, in one step."""
        assert self._transfer is not None
        try:
            missed = list(await self._transfer(self.position, cut))
        except Exception as error:  # else this member would wait for ever, and report nothing
            self.end(
                Closed(
                    f"this broker could not fetch what it missed after {self.position}, up to view {cut.id}: "
                    f"{type(error).__name__}: {error}; open it again"
                )
            )
            return
        waiting, self._backlog = self._backlog or [], None
        for item in (*missed, *waiting):
            if not isinstance(item, View):
                self._apply(*item)
            elif item.quorate:
                self._apply_view(item)
        self._settle()  # frames that became stable meanwhile


def _fail(future: asyncio.Future[Any], error: HoldfastError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as seen: asyncio does not warn if the caller does not wait
