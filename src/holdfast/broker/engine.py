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
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast._core import Frame
from holdfast.broker.events import Event
from holdfast.broker.log_time import LogClock
from holdfast.broker.machine import Applied, Machine
from holdfast.errors import Closed, Full, HoldfastError
from holdfast.group import BEGINNING, Group, Listener, Member, Position, View
from holdfast.system import Clock, Lock

UNDER_WAY_BYTES = 8 << 20
"""Bytes of this member's frames that are not settled; above this, publishers wait in `room`."""


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
    own: bool
    """Whether this member has sent it."""


@dataclass(slots=True, eq=False)
class _Settling:
    """A call of `settle` that waits."""

    done: asyncio.Future[None]
    answered: int
    """The number of own frames that must have their outcomes."""
    position: Position
    """The frames up to here must be settled."""


@dataclass(slots=True, eq=False)
class _Place:
    """A place in the queue of publishers that wait for room."""

    woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Engine(Listener):
    """Puts events into frames, and completes their futures when the frames are stable.

    One engine drives one `Machine`; nothing else does. `at` is the position of the machine's state: frames
    and views up to it are skipped. `foreign` are frames of this member that were submitted before, and are
    still to come. Without `complete`, ledgers are missing here: this member holds nothing (**I251**).
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
        foreign: int = 0,
        complete: bool = True,
    ) -> None:
        self._machine = machine
        self._store = store
        self._group = group
        self._clock = clock
        self.log_clock = LogClock(clock)
        """The time of frames, and of all that is compared with log time."""
        self._observer = observer
        self._unclean = unclean
        self._frame = Frame()
        self._futures: list[asyncio.Future[Any]] = []
        self._flush_scheduled = False
        self._sent: deque[list[asyncio.Future[Any]]] = deque([] for _ in range(foreign))
        """The futures of each frame that this member has submitted; none for an announcement."""
        self._submitted, self._answered = foreign, 0
        """Own frames that were given to the group, and those with outcomes."""
        self._settling: list[_Settling] = []
        self._at = at
        self._inflight: deque[_Inflight] = deque()
        self._unheld: deque[tuple[int, Position]] = deque()
        self._durable_d = machine.log.next_d - 1
        self._complete = complete
        self._held = BEGINNING
        """Everything up to here is applied and durable here."""
        self._under_way = 0
        self._room: deque[_Place] = deque()
        """Publishers that wait, in the order of their calls. The first one leaves first."""
        self.guard: Callable[[Event], Callable[[asyncio.Future[Any]], None] | None] | None = None
        """Called before an event is submitted. It raises if a limit is exceeded, or returns a callback."""
        self.version_of: Callable[[Event], int] | None = None
        """Returns the version in which all members know an event; None: this member is alone."""
        self.on_ended: Callable[[HoldfastError], None] | None = None
        """Called once, when the engine has ended."""
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
            Unsupported: another member does not know such an event yet.
        """
        version = event.version if self.version_of is None else self.version_of(event)
        body = event.encode(version)
        told = None if self.guard is None else self.guard(event)
        future = self.add(lambda frame: frame.event(event.kind, version, body))
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
        if self._frame.size >= self._group.frame_bytes:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            loop.call_soon(self._flush_turn)
        return futures

    async def settle(self) -> None:
        """Wait until all that was submitted or applied so far is stable, and durable here.

        Raises:
            Closed: the engine ended meanwhile.
        """
        await self._settled_up_to(self.position)

    async def answered(self) -> None:
        """Wait until all events that this member has submitted so far have an outcome.

        Raises:
            Closed: the engine ended meanwhile.
        """
        await self._settled_up_to(BEGINNING)

    async def _settled_up_to(self, position: Position) -> None:
        self._flush()
        submitted = self._submitted
        await self._group.drain()
        await self._store.flush()
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))
        waiting = _Settling(asyncio.get_running_loop().create_future(), submitted, position)
        self._settling.append(waiting)
        self._wake_settled()
        try:
            await waiting.done
        finally:
            if waiting in self._settling:
                self._settling.remove(waiting)

    def _wake_settled(self) -> None:
        """End the calls of `settle` whose events have their outcomes."""
        for each in self._settling:
            first = self._inflight[0].position if self._inflight else None
            settled = first is None or first > each.position
            if settled and self._answered >= each.answered and not each.done.done():
                each.done.set_result(None)

    @property
    def behind(self) -> bool:
        """Whether the disk, or another member, is behind; publishers should wait in `room`."""
        return self._is_full or self._group.blocked

    @property
    def _is_full(self) -> bool:
        """Whether more than `UNDER_WAY_BYTES` are under way."""
        coming = self._frame.size if self._futures else 0
        return self._under_way + coming > UNDER_WAY_BYTES

    async def room(self) -> None:
        """Wait while the disk, or another member, is behind.

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
                if self._room[0] is place and not self._is_full:
                    await self._drain()
                else:
                    place.woken = asyncio.get_running_loop().create_future()
                    await place.woken
        finally:
            self._room.remove(place)
            self._wake_first()

    async def _drain(self) -> None:
        """Wait for the slowest member: nothing else limits what waits for it."""
        with contextlib.suppress(Closed):  # then `on_lost` has ended the engine
            await self._group.drain()

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
        self._submitted += 1
        self._under_way += len(frame)
        try:
            self._group.mcast(frame)
        except HoldfastError as error:  # no quorum, the end, or larger than the group carries
            self._sent.pop()
            self._submitted -= 1
            self._under_way -= len(frame)
            for future in futures:
                _fail(future, error)
            self._wake_first()

    def announce(self, event: Event) -> None:
        """Send an event that changes nothing, in a frame of its own.

        It comes behind all that was submitted.

        Raises:
            Closed: the engine has ended.
            NoQuorum: the view has no majority.
        """
        self._require_open()
        self._flush()
        frame = Frame()
        frame.event(event.kind, event.version, event.encode())
        self._group.mcast(frame.take(self.log_clock.now_ns()))
        self._sent.append([])
        self._submitted += 1

    # -- what the group calls --------------------------------------------------------------------------

    def on_view(self, view: View) -> None:
        if view.quorate and not self._is_behind(view.position):
            self._apply_view(view)

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        if self._is_behind(pos):
            if member == self._group.member and self._sent:
                self._sent.popleft()
                self._answered += 1
        else:
            self._apply(pos, member, event)

    def _is_behind(self, pos: Position) -> bool:
        """Return whether the state has this position; hold it when the group delivers it."""
        if pos == self._at:
            self._hold_at(pos)
        return pos <= self._at

    def resume(self, delivered: Position) -> None:
        """Hold the recovered state, if the group has delivered so much."""
        if BEGINNING < self._at <= delivered:
            self._hold_at(self._at)

    def completed(self) -> None:
        """Note that no ledger is missing any more: this member counts for stability (**I251**)."""
        self._complete = True
        if self._held > BEGINNING and self._ended is None:
            self._group.hold(self._held)

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
        waiting = [*self._inflight_futures(), *(each for sent in self._sent for each in sent), *self._futures]
        self._inflight.clear()
        self._sent.clear()
        self._futures = []
        for future in waiting:
            _fail(future, reason)
        for place in self._room:
            place.wake()
        for each in self._settling:
            _fail(each.done, reason)
        self._observer.ended(reason)
        if self.on_ended is not None:
            self.on_ended(reason)

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
        if self._room and not self._is_full:
            self._room[0].wake()

    # -- applying --------------------------------------------------------------------------------------

    def _apply_view(self, view: View) -> None:
        applied = self._machine.view(view, self._unclean)
        self._unclean = False
        self._track(view.position, applied, [], 0, False)

    def _apply(self, pos: Position, member: Member, event: bytes) -> None:
        applied = self._machine.apply(pos.view, pos.index, member, event)
        if member == self._group.member and self._sent:
            futures = self._sent.popleft()
            self._track(pos, applied, futures, len(event) if futures else 0, True)
        else:
            self._track(pos, applied, [], 0, False)

    def _track(
        self, pos: Position, applied: Applied, futures: list[asyncio.Future[Any]], size: int, own: bool
    ) -> None:
        self.position = pos
        self._inflight.append(_Inflight(pos, applied, futures, size, self._clock.monotonic_ns(), own))
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
            self._answered += frame.own
            self._under_way -= frame.size
            for future, outcome in zip(frame.futures, frame.applied.outcomes, strict=False):
                if future.done():
                    continue  # the caller was cancelled
                if isinstance(outcome, HoldfastError):
                    _fail(future, outcome)
                else:
                    future.set_result(outcome)
        if self._settling:
            self._wake_settled()
        self._wake_first()

    def _hold(self) -> None:
        """Tell the group up to which position this member has applied and stored everything."""
        held: Position | None = None
        while self._unheld and self._unheld[0][0] <= self._durable_d:
            held = self._unheld.popleft()[1]
        if held is not None and self._ended is None:
            self._hold_at(held)

    def _hold_at(self, position: Position) -> None:
        self._held = max(self._held, position)
        if self._complete:
            self._group.hold(position)


class Joined(Protocol):
    """A member that has joined its group, and kept what was delivered since."""

    @property
    def lock(self) -> Lock:
        """The lock of the directory, which the store takes over."""

    def foreign(self) -> int:
        """Return how many frames of this member, submitted before, `attach` will hand over."""

    @property
    def missing(self) -> Set[int]:
        """The numbers of ledgers that are not here yet, or not compared with another member's."""

    def attach(self, engine: Engine) -> None:
        """Hand over what was kept, and then all that comes. It does not wait."""


def _fail(future: asyncio.Future[Any], error: HoldfastError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as seen: asyncio does not warn if the caller does not wait
