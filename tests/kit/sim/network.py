"""The simulated network: rings of connected nodes order events, break and form again, like Corosync's.

An event gets its number in its sender's turn. The sender has it at once, and the others later. Each member
hands it up when it has all events before. While a ring is broken no event gets a number. When a ring forms
again, the members that stay together first exchange what they have of the old ring. That is everything up to
the first hole, and beyond it the events that they sent themselves. For other members those events never
happened: here deliveries cease to be uniform.

All this belongs to the world, not to a node: it continues while a node's program is paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.group.interface import BEGINNING, Member, Position, View
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.trace import Trace, digest


@dataclass
class Weather:
    """Delays of the network in seconds, and shares. Ranges are drawn from evenly."""

    turn_s: tuple[float, float] = (50e-6, 500e-6)
    """Time until a sender's turn."""
    delay_s: tuple[float, float] = (100e-6, 2e-3)
    loss: float = 0.02
    """Share of packets that must be sent again."""
    again_s: float = 20e-3
    detection_s: tuple[float, float] = (0.8, 4.0)
    """Time from a broken ring to the next one."""
    change_s: tuple[float, float] = (2e-3, 20e-3)
    """Time from a request to join or leave to the view."""
    bytes_per_s: float = 50e6


class Entry(NamedTuple):
    sender: Endpoint
    event: bytes


class Delivered(NamedTuple):
    """An event of the primary history."""

    position: Position
    member: Member
    event: bytes


@dataclass(eq=False)
class Ring:
    view: View
    members: list[Endpoint]
    log: list[Entry] = field(default_factory=list)

    def whole(self, connected: Callable[[int, int], bool]) -> bool:
        ends = self.members
        return all(end.up for end in ends) and all(
            connected(a.member.node, b.member.node) for a in ends for b in ends
        )


class Endpoint:
    """One member in the network: its events, what reached it, and the others' progress."""

    def __init__(self, member: Member, arrived: Callable[[], None]) -> None:
        self.member = member
        self.up = True
        self.leaving = False
        self.cut: Position | None = None
        self.complete = False
        """Whether it holds the state of its cut."""
        self.ring: Ring | None = None
        self.outbox: deque[bytes] = deque()
        self.inbox: deque[Entry | View | str] = deque()
        """Items for the group: an event, a view, or the reason of a loss."""
        self.inbox_bytes = 0
        self.received: set[int] = set()
        self.handed_up = 0
        self.known: dict[Member, tuple[Position, Position]] = {}
        """By member of the ring: the positions that it has delivered, and holds."""
        self.word = (BEGINNING, BEGINNING)
        self.word_due = False
        self._arrived = arrived

    def push(self, item: Entry | View | str) -> None:
        self.inbox.append(item)
        if isinstance(item, Entry):
            self.inbox_bytes += len(item.event)
        self._arrived()

    def hand_up(self) -> None:
        """Hand up all events without a hole before them."""
        assert self.ring is not None
        while self.handed_up in self.received:
            self.push(self.ring.log[self.handed_up])
            self.handed_up += 1


class Network:
    """All rings, and the connections of nodes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, chance: SeededRandomness, votes: int, trace: Trace
    ) -> None:
        self.weather = Weather()
        self.history: list[View | Delivered] = []
        """The primary views in order, each followed by its events once it is closed."""
        self.configure(range(1, votes + 1))
        self.endpoints: list[Endpoint] = []
        self._loop = loop
        self._chance = chance
        self._trace = trace
        self._context = Context()
        self._sides: dict[int, int] = {}
        self._dead: frozenset[tuple[int, int]] = frozenset()
        """Links that carry nothing, each in one direction: from a node, to a node."""
        self._views = 0
        self._primary: Ring | None = None
        self._reform_ns: int | None = None

    def configure(self, nodes: Iterable[int]) -> None:
        """Set the nodes that have a vote, in views from now on."""
        self.votes = tuple(sorted(nodes))
        self.majority = len(self.votes) // 2 + 1

    # -- calls of nodes and faults ---------------------------------------------------------------------

    def join(self, endpoint: Endpoint, view_floor: int = 0) -> None:
        """Let a member join; later views have ids above its `view_floor`."""
        self._views = max(self._views, view_floor)
        self.endpoints.append(endpoint)
        self._changed(self.weather.change_s)

    def leave(self, endpoint: Endpoint) -> None:
        endpoint.leaving = True
        self._changed(self.weather.change_s)

    def kill(self, endpoint: Endpoint) -> None:
        """Remove a member at once; the others have to find out."""
        endpoint.up = False
        self._changed(self.weather.detection_s)

    def split(self, *sides: list[int]) -> None:
        """Connect nodes only within their side; nodes that are not named form one side."""
        self._sides = {node: number for number, side in enumerate(sides, 1) for node in side}
        self._dead = frozenset()
        self._changed(self.weather.detection_s)

    def cut(self, *links: tuple[int, int]) -> None:
        """Cut links, each in one direction: `(1, 2)` carries what 1 sends to 2."""
        self._dead |= set(links)
        self._changed(self.weather.detection_s)

    def reaches(self, one: int, other: int) -> bool:
        """Return whether packets of one node arrive at the other."""
        return self._sides.get(one, 0) == self._sides.get(other, 0) and (one, other) not in self._dead

    def connected(self, one: int, other: int) -> bool:
        """Return whether two nodes hear each other, as members of one ring must."""
        return self.reaches(one, other) and self.reaches(other, one)

    def submit(self, endpoint: Endpoint, event: bytes) -> None:
        endpoint.outbox.append(event)
        self._later(self.weather.turn_s, self._take_turn, endpoint)

    def say(self, endpoint: Endpoint, delivered: Position, held: Position) -> None:
        """Tell the ring this member's progress, soon and in one message."""
        endpoint.word = (delivered, held)
        endpoint.complete = endpoint.cut is not None and held >= endpoint.cut
        self._note(endpoint, endpoint, endpoint.word)
        if not endpoint.word_due and endpoint.up:
            endpoint.word_due = True
            self._later((0.5e-3, 5e-3), self._send_word, endpoint)

    # -- order -----------------------------------------------------------------------------------------

    def _take_turn(self, endpoint: Endpoint) -> None:
        ring = endpoint.ring
        if ring is None or not endpoint.up or not endpoint.outbox or not ring.whole(self.connected):
            return  # when the next ring forms, members with events get a turn
        event = endpoint.outbox.popleft()
        number = len(ring.log)
        ring.log.append(Entry(endpoint, event))
        self._trace.add("net", "order", f"{ring.view.id}:{number + 1}", endpoint.member, digest(event))
        for end in ring.members:
            if end is endpoint:
                self._receive(ring, number, end)
            else:
                self._send(ring, number, end)

    def _send(self, ring: Ring, number: int, end: Endpoint) -> None:
        low, high = self.weather.delay_s
        wire = len(ring.log[number].event) / self.weather.bytes_per_s
        wait = self.weather.again_s if self._chance.happens(self.weather.loss) else 0.0
        self._later((low + wire + wait, high + wire + wait), self._receive, ring, number, end)

    def _receive(self, ring: Ring, number: int, end: Endpoint) -> None:
        if end.ring is not ring or not end.up:
            return
        reached = end is ring.log[number].sender or any(
            other.up and number in other.received and self.reaches(other.member.node, end.member.node)
            for other in ring.members
        )
        if not reached:
            self._later((self.weather.again_s, self.weather.again_s), self._receive, ring, number, end)
            return
        end.received.add(number)
        end.hand_up()

    # -- acknowledgements ------------------------------------------------------------------------------

    def _send_word(self, endpoint: Endpoint) -> None:
        endpoint.word_due = False
        ring = endpoint.ring
        if ring is None or not endpoint.up:
            return
        for end in ring.members:
            if end is not endpoint:
                self._later(self.weather.delay_s, self._hear, ring, endpoint, end, endpoint.word)

    def _hear(self, ring: Ring, speaker: Endpoint, end: Endpoint, word: tuple[Position, Position]) -> None:
        # A word counts only among members of the same ring now. An event that a member delivered on its way
        # out may be another event elsewhere, at the same position.
        if speaker.ring is not ring or end.ring is not ring or not end.up:
            return
        lost = self._chance.happens(self.weather.loss)
        if lost or not self.reaches(speaker.member.node, end.member.node):
            self._later((self.weather.again_s, self.weather.again_s), self._hear, ring, speaker, end, word)
            return
        self._note(end, speaker, word)

    def _note(self, end: Endpoint, speaker: Endpoint, word: tuple[Position, Position]) -> None:
        before = end.known.get(speaker.member, (BEGINNING, BEGINNING))
        end.known[speaker.member] = (max(before[0], word[0]), max(before[1], word[1]))
        end._arrived()

    # -- views -----------------------------------------------------------------------------------------

    def _changed(self, delay_s: tuple[float, float]) -> None:
        """Form rings again, some time after the last change."""
        due = self._loop_ns() + round(self._chance.between(*delay_s) * 1e9)
        self._reform_ns = max(self._reform_ns or 0, due)
        self._later((delay := (self._reform_ns - self._loop_ns()) / 1e9, delay), self._reform_if_due)

    def _reform_if_due(self) -> None:
        if self._reform_ns is not None and self._loop_ns() >= self._reform_ns:
            self._reform_ns = None
            self._reform()

    def _reform(self) -> None:
        present = [end for end in self.endpoints if end.up and not end.leaving]
        sides = self._groups(sorted(present, key=lambda end: end.member))
        changed = [side for side in sides if not self._is_ring(side)]
        kept = [side[0].ring for side in sides if self._is_ring(side)]
        closing = [ring for ring in self._rings() if ring not in kept]
        for ring in closing:
            self._close(ring, changed)
        # Compared with the last primary view, before this call makes another one.
        last = self._primary
        for side in changed:
            staying = self._drop_discontinued(side, last)
            if staying:
                self._open(staying, last)
        self.endpoints = [end for end in self.endpoints if end.up and not end.leaving]
        for end in self.endpoints:
            for _ in end.outbox:
                self._later(self.weather.turn_s, self._take_turn, end)

    def _groups(self, present: list[Endpoint]) -> list[list[Endpoint]]:
        """Divide members into groups in which all hear each other.

        If only some links work, there are several ways, and chance decides: rings of Corosync form like that.
        """
        if self._dead and present:
            first = self._chance.integer(len(present))
            present = present[first:] + present[:first]
        groups: list[list[Endpoint]] = []
        for end in present:
            for group in groups:
                if all(self.connected(end.member.node, other.member.node) for other in group):
                    group.append(end)
                    break
            else:
                groups.append([end])
        groups = [sorted(group, key=lambda end: end.member) for group in groups]
        return sorted(groups, key=lambda group: group[0].member)

    def _rings(self) -> list[Ring]:
        found: dict[int, Ring] = {
            end.ring.view.id: end.ring for end in self.endpoints if end.ring is not None
        }
        if self._primary is not None:
            found.setdefault(self._primary.view.id, self._primary)
        return [found[key] for key in sorted(found) if found[key].members]

    def _is_ring(self, side: list[Endpoint]) -> bool:
        return bool(side) and side[0].ring is not None and side[0].ring.members == side

    def _close(self, ring: Ring, sides: list[list[Endpoint]]) -> None:
        """Hand up the rest of a ring's events: the same to members that stay together."""
        leavers = [end for end in ring.members if end.leaving and end.up]
        endings: list[tuple[bool, int, int, list[int]]] = []
        for side in sides:
            stay = [end for end in side if end.ring is ring]
            near = [e for e in leavers if stay and self.connected(e.member.node, stay[0].member.node)]
            if stay:
                numbers, hole = self._ending(ring, stay + near)
                self._finish(ring, stay + near, numbers)
                leavers = [end for end in leavers if end not in near]
                endings.append((self._continues(ring, side), hole, len(stay), numbers))
        for end in leavers:
            numbers, hole = self._ending(ring, [end])
            self._finish(ring, [end], numbers)
            endings.append((False, hole, 0, numbers))
        for end in ring.members:
            if not end.up:
                endings.append((False, end.handed_up, 0, list(range(end.handed_up))))
            if end.leaving or not end.up:
                end.ring = None
        if ring is self._primary and endings:
            numbers = max(endings, key=lambda ending: ending[:3])[3]
            self.history += [
                Delivered(Position(ring.view.id, at), ring.log[number].sender.member, ring.log[number].event)
                for at, number in enumerate(numbers, 1)
            ]
        ring.members = []

    def _ending(self, ring: Ring, ends: list[Endpoint]) -> tuple[list[int], int]:
        """Return the events that these members hand up at last, and the first hole."""
        known = set().union(*(end.received for end in ends))
        hole = next(number for number in range(len(ring.log) + 1) if number not in known)
        own = [number for number in sorted(known) if number > hole and ring.log[number].sender in ends]
        return [*range(hole), *own], hole

    def _finish(self, ring: Ring, ends: list[Endpoint], numbers: list[int]) -> None:
        for end in ends:
            for number in numbers[end.handed_up :]:
                end.push(ring.log[number])
            if end.leaving:
                end.push("it left")

    def _continues(self, ring: Ring, side: list[Endpoint]) -> bool:
        """Return whether this side can vouch for all that was stable in the ring.

        If a majority of the votes left at once, those members may hold a stable event that the others have
        never seen. The same holds if no member that stays has the state from before the ring.
        """
        stay = [end for end in side if end.ring is ring]
        gone = len(ring.view.members) - len(stay)
        if len(side) < self.majority or not stay:
            return False
        return not gone or (gone < self.majority and any(end.complete for end in stay))

    def _drop_discontinued(self, side: list[Endpoint], last: Ring | None) -> list[Endpoint]:
        """Lose members that cannot vouch for the last primary view; return the rest."""
        if last is None or len(side) < self.majority or self._continues(last, side):
            return side
        for end in side:
            if end.ring is last:
                why = f"too many left view {last.view.id} at once to vouch for what was stable in it"
                self._lose(end, why)
        return [end for end in side if end.up]

    def _open(self, side: list[Endpoint], last: Ring | None) -> None:
        self._views += 1
        members = tuple(end.member for end in side)
        before = last.view.members if last is not None else ()
        view = View(
            id=self._views,
            members=members,
            joined=tuple(member for member in members if member not in before),
            left=tuple(member for member in before if member not in members),
            quorate=len({member.node for member in members}) >= self.majority,
            votes=self.votes,
        )
        ring = Ring(view, side)
        self._trace.add("net", "view", view.id, *members, "quorate" if view.quorate else "minority")
        for end in side:
            was_quorate = end.ring is not None and end.ring.view.quorate
            end.ring, end.received, end.handed_up = ring, set(), 0
            if view.is_cut_of(end.member):
                end.cut = view.position
            end.known = {member: word for member, word in end.known.items() if member in members}
            end.push(view)
            if was_quorate and not view.quorate:
                self._lose(end, f"view {view.id} is not quorate: {len(members)} of {len(self.votes)} votes")
        if view.quorate:
            self._primary = ring
            self.history.append(view)

    def _lose(self, end: Endpoint, reason: str) -> None:
        end.push(reason)
        self.kill(end)
        end.ring = None

    def _later(self, delay_s: tuple[float, float], call: Callable[..., None], *args: object) -> None:
        self._loop.call_later(self._chance.between(*delay_s), call, *args, context=self._context)

    def _loop_ns(self) -> int:
        return round(self._loop.time() * 1e9)
