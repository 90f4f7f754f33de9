"""A machine for tests, fed with frames at rising positions, and restarted from its journal."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from holdfast import _core
from holdfast.broker import state_codec
from holdfast.broker.events import Event, LedgerRoll, ProducerOpen, SubscriptionCreate, TopicCreate
from holdfast.broker.machine import Applied, Machine
from holdfast.broker.state import Access, Policies, SubscriptionState, TopicState
from holdfast.errors import HoldfastError
from holdfast.group import Member, Position, View
from holdfast.names import topic_name

ME = Member(1, 1)
OTHER = Member(2, 1)
SECOND = 1_000_000_000


class Publish:
    """A publish of entries, in a list of events."""

    def __init__(
        self,
        topic: int,
        session: int,
        entries: Sequence[bytes],
        epoch: int = 0,
        producer: str = "p",
        sequence: int = 0,
    ) -> None:
        self.topic, self.session, self.epoch, self.producer = topic, session, epoch, producer
        self.rows = [(sequence + at, 1, entry) for at, entry in enumerate(entries)]


def frame_of(events: Sequence[Event | Publish], time: int) -> bytes:
    frame = _core.Frame()
    for event in events:
        if isinstance(event, Publish):
            frame.publish(event.topic, event.session, event.epoch, event.producer, event.rows)
        else:
            frame.event(event.kind, event.version, event.encode())
    return frame.take(time)


def events_in(frame: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (kind, version, body) of each event of a frame."""
    at = 16
    while at < len(frame):
        size, kind, version = int.from_bytes(frame[at : at + 4], "little"), frame[at + 4], frame[at + 5]
        yield kind, version, frame[at + 8 : at + 8 + size]
        at += 8 + size


def journaled(log: _core.Log) -> list[tuple[int, int, bytes]]:
    """Return (view, index, frame) of each frame that waits to be written."""
    frames = []
    while (taken := log.take_round()) is not None:
        data = taken.journal(taken.first_d - 1, 0, 0, synced_d=0, salt=0)
        at, end = 0, len(data)
        while at + 32 <= end:
            _, kind, _, size, *_ = struct.unpack_from("<HBBIQQII", data, at)
            if kind == 4:
                view, index = struct.unpack_from("<QQ", data, at + 32)
                frames.append((view, index, data[at + 48 : at + 32 + size]))
            elif kind != 3:
                break
            at += 32 + (size + 7) // 8 * 8
    return frames


class Rig:
    """One broker's machine. Everything that it applies is checked."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or Machine()
        self.view = self.machine.state.position.view
        self.index = 0
        self.time = max(SECOND, self.machine.log.time)
        self.journal: list[tuple[int, int, bytes]] = []
        self.history: list[tuple[View, bool] | tuple[int, int, Member, bytes]] = []
        """All that the machine was given, to give to another one."""
        self.last: Applied | None = None
        self.enter(ME, OTHER)

    @property
    def state(self) -> Any:
        return self.machine.state

    def enter(self, *members: Member, unclean: bool = False) -> Applied:
        """Enter a new view."""
        self.view, self.index = self.view + 1, 0
        view = View(self.view, members, (), (), True)
        self.history.append((view, unclean))
        return self._applied(self.machine.view(view, unclean))

    def apply(self, *events: Event | Publish, member: Member = ME) -> Applied:
        """Apply one frame."""
        self.index += 1
        self.time += 1000
        frame = frame_of(events, self.time)
        self.history.append((self.view, self.index, member, frame))
        return self._applied(self.machine.apply(self.view, self.index, member, frame))

    def do(self, event: Event | Publish, member: Member = ME) -> Any:
        """Apply a frame of one event; return its outcome, or raise its error."""
        (outcome,) = self.apply(event, member=member).outcomes
        if isinstance(outcome, HoldfastError):
            raise outcome
        return outcome

    def _applied(self, applied: Applied) -> Applied:
        self.journal += journaled(self.machine.log)
        self.machine.check()
        self.last = applied
        return applied

    def everything(self) -> list[Any]:
        """Return the state as comparable values, without position, time and caches."""
        state = self.machine.state
        for part in (
            *state.topics.values(),
            *state.subscriptions.values(),
            *state.stages.values(),
            state.sinks,
            state.namespaces,
            state.announced,
            state.decided,
            *state.exchanges.all.values(),
            state.exchanges.alternates,
            *state.thinned.values(),
        ):
            part.packed = None
        counters = msgspec.structs.replace(state_codec.broker_part(state), view=0, index=0, time=0)
        return [counters, *state_codec.pack(state)[1:], state.changes]

    # -- what tests start with -------------------------------------------------------------------------

    def topic(self, name: str = "orders", **policies: Any) -> TopicState:
        made = self.do(TopicCreate(topic_name(name), bytes(16), Policies(**policies)))
        return self.machine.state.topics[made.topic]

    def subscription(self, topic: TopicState, name: str = "billing", start: int = 0) -> SubscriptionState:
        made = self.do(SubscriptionCreate(topic.id, name, start))
        return self.machine.state.subscriptions[made.subscription]

    def producer(self, topic: TopicState, name: str = "p", access: Access = "shared", **more: Any) -> Any:
        member = more.pop("member", ME)
        return self.do(ProducerOpen(topic.id, name, access, member, **more), member)

    def filled(self, topic: TopicState, count: int, ledgers: int = 1) -> int:
        """Publish `count` entries in `ledgers` ledgers; return the session."""
        session = self.producer(topic, f"filler-{self.machine.state.next_session}")
        for part in range(ledgers):
            size = count // ledgers + (count % ledgers if part == ledgers - 1 else 0)
            entries = [b"%d" % at for at in range(size)]
            self.do(Publish(topic.id, session.session, entries, session.epoch, session.name))
            if part < ledgers - 1:
                self.do(LedgerRoll(topic.id, topic.ledgers.open_ledger or 0))
        return int(session.session)

    # -- restarts --------------------------------------------------------------------------------------

    def twin(self) -> Machine:
        """Return another member's machine that was given the same."""
        return self.fed(Machine())

    def fed(self, machine: Machine, count: int | None = None) -> Machine:
        """Give a machine the frames that follow its position, of the first `count`."""
        for given in self.history[:count]:
            at = given[0].position if len(given) == 2 else Position(given[0], given[1])
            if at <= machine.state.position:
                continue
            if len(given) == 2:
                machine.view(*given)
            else:
                machine.apply(*given)
        return machine

    def restarted(self, snapshot: Sequence[bytes] | None = None, journal_from: int = 0) -> Machine:
        """Return another machine, made from the snapshot, if any, and the journal behind it.

        A last frame in which nothing was durable is in neither, so the machine is given what it has missed.
        """
        machine = Machine()
        if snapshot is not None:
            machine.load(snapshot)
        for view, index, frame in self.journal[journal_from:]:
            machine.redo(view, index, frame)
        machine.check()
        return self.fed(machine)


def refused(
    rig: Rig, event: Event, error: type[HoldfastError], match: str | None = None, member: Member = ME
) -> Any:
    """Require that the event is refused, takes no D, and leaves everything as it was."""
    before, d, frames = rig.everything(), rig.machine.log.next_d, len(rig.journal)
    with pytest.raises(error, match=match) as caught:
        rig.do(event, member)
    assert rig.machine.log.next_d == d
    assert len(rig.journal) == frames
    assert rig.everything() == before, "a refusal changed something"
    return caught.value


def nothing_happens(rig: Rig, event: Event) -> Any:
    """Require that the event gets an answer, and takes no D."""
    d = rig.machine.log.next_d
    outcome = rig.do(event)
    assert rig.machine.log.next_d == d
    return outcome
