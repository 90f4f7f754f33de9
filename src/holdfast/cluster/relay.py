"""A listener between group and engine: it keeps frames until there is an engine.

```
 group ──► Relay ──► (kept: views, frames) ──► attach ──► Engine
             │ hellos, marks
             ▼
          judged: wait, elected, or copy from these members
```
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast._core import Frame
from holdfast.broker.engine import Engine
from holdfast.broker.events import Event, MemberHello, TransferMark, ViewChange, decode
from holdfast.cluster.election import Decision, Outcome, decide
from holdfast.cluster.hello import CutMark, Hello
from holdfast.errors import Corrupt, HoldfastError
from holdfast.group import BEGINNING, Group, Listener, Member, Position, View

LOG = logging.getLogger("holdfast.cluster")

APART = (
    "no majority of the nodes is connected; do their brokers run, with the same cluster.name, and does "
    "corosync-quorumtool list all nodes?"
)
KEPT_BYTES = 64 << 20
"""Bytes of frames that a joiner keeps; older ones come with the copy."""

Delivered: TypeAlias = tuple[Position, Member, bytes]

_HEADER, _EVENT_HEADER = 16, 8
_MAGIC = b"\x46\x52"
_OWN_KINDS = (MemberHello.kind, TransferMark.kind)


def said(frame: bytes) -> Event | None:
    """Return the hello or the mark of a frame; None for all other frames."""
    if len(frame) < _HEADER + _EVENT_HEADER or frame[:2] != _MAGIC or frame[_HEADER + 4] not in _OWN_KINDS:
        return None
    try:
        return decode(frame[_HEADER + 4], frame[_HEADER + 5], frame[_HEADER + _EVENT_HEADER :])
    except HoldfastError:
        return None


def change_of(view: View) -> str:
    """Say which nodes joined and left, for the log.

    Example:
        >>> a, b, c = Member(1, 1), Member(2, 1), Member(3, 8)
        >>> change_of(View(id=4, members=(a, b), joined=(b,), left=(c,), quorate=True))
        'view 4 has nodes 1, 2: node 2 joined, node 3 left'
    """
    nodes = ", ".join(str(each.node) for each in view.members)
    changes = [f"node {each.node} joined" for each in view.joined]
    changes += [f"node {each.node} left" for each in view.left]
    return f"view {view.id} has nodes {nodes}: {', '.join(changes)}"


def framed(event: Event) -> bytes:
    """Return a frame with one event. It changes nothing, so its time has no effect."""
    frame = Frame()
    frame.event(event.kind, event.version, event.encode())
    return frame.take(0)


class Relay(Listener):
    """The listener of a member, from its first view to its loss."""

    def __init__(self, hello: Callable[[], Hello], nodes: Sequence[int]) -> None:
        self._hello = hello
        self._nodes = nodes
        self._group: Group | None = None
        self._engine: Engine | None = None
        self._kept: deque[Delivered | View] = deque()
        self._kept_bytes = 0
        self._spoken = 0
        """Own frames that were submitted here, and not dropped since: the engine will get them."""
        self._changed = asyncio.Event()
        self.view: View | None = None
        self.cut: View | None = None
        """The first quorate view of this member."""
        self.hellos: dict[Member, Hello] = {}
        """Of the members of the current view, as said in it."""
        self.marks: set[tuple[Member, bytes]] = set()
        self.decision = Decision(Outcome.WAIT, reason=APART)
        self.elected = False
        """This member's directory continues; it stays so until the member is lost."""
        self.delivered = BEGINNING
        self.dropped = BEGINNING
        """Everything up to here was dropped: a copy must have it."""
        self.stable = BEGINNING
        self.lost: str | None = None
        self.drops = True
        """Whether old frames may be dropped: a copy that comes will have them."""
        self.watch_views: Callable[[View], None] | None = None
        """Called with each view."""
        self.hears = True
        """Whether hellos are heard beside a running engine: a member that is updated looks for donors."""

    def use(self, group: Group) -> None:
        """Set the group, before it is started."""
        self._group = group

    @property
    def member(self) -> Member:
        assert self._group is not None
        return self._group.member

    # -- what the group calls --------------------------------------------------------------------------

    def on_view(self, view: View) -> None:
        if self.view is not None and (view.joined or view.left):
            LOG.info("%s", change_of(view))
        self.view, self.hellos = view, {}
        self.delivered = view.position
        if self.watch_views is not None:
            self.watch_views(view)
        if view.quorate and self.cut is None:
            self.cut = view
        if self._engine is not None:
            self._engine.on_view(view)
        else:
            self._keep(view)
        if view.quorate:  # also if no member joined: one that still copies has lost its donor, maybe
            asyncio.get_running_loop().call_soon(self._speak, view)
        self._judge()

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        self.delivered = pos
        if self._engine is None or self.hears:
            heard = said(event)
            if isinstance(heard, MemberHello):
                self._hear(member, heard)
            elif isinstance(heard, TransferMark):
                self.marks.add((member, heard.token))
                self._wake()
        if self._engine is not None:
            self._engine.on_deliver(pos, member, event)
        else:
            self._keep((pos, member, event))

    def on_stable(self, pos: Position) -> None:
        self.stable = pos
        if self._engine is not None:
            self._engine.on_stable(pos)
        self._wake()

    def on_lost(self, reason: str) -> None:
        self.lost = reason
        if self._engine is not None:
            self._engine.on_lost(reason)
        self._wake()

    # -- hellos ----------------------------------------------------------------------------------------

    def speak(self) -> None:
        """Say hello again: this member has all ledgers now, and others may copy from it."""
        self.hears = False
        if self.view is not None and self.view.quorate:
            self._speak(self.view)
        self._wake()

    def _speak(self, view: View) -> None:
        """Say hello in a view, unless it has ended."""
        if self.lost is not None or self.view is not view or self._group is None:
            return
        hello = MemberHello(view.id, self._hello().encode())
        try:
            if self._engine is not None:
                self._engine.announce(hello)
            else:
                self._group.mcast(framed(hello))
                self._spoken += 1
        except HoldfastError:
            pass  # the view has ended, or this member: the next view asks again

    def _hear(self, member: Member, heard: MemberHello) -> None:
        view = self.view
        if view is None or heard.view != view.id or member not in view.members:
            return
        try:
            hello = Hello.decode(heard.body)
        except Corrupt:
            return  # of a newer program: it is waited for
        if hello.node == member.node:
            self.hellos[member] = hello
            self._judge()

    @property
    def donors(self) -> list[Member]:
        """The members of the view that serve, or were elected: others copy from them."""
        chosen = self.decision.node
        return [
            member for member in sorted(self.hellos) if self.hellos[member].ready or member.node == chosen
        ]

    def _judge(self) -> None:
        """Decide when all members of the view have said hello; the same on each."""
        view = self.view
        if self._engine is None and not self.elected and view is not None:
            missing = [member.node for member in view.members if member not in self.hellos]
            if not view.quorate:
                away = sorted(set(self._nodes) - {member.node for member in view.members})
                self.decision = Decision(Outcome.WAIT, None, tuple(away), APART)
            elif ready := [member for member in sorted(self.hellos) if self.hellos[member].ready]:
                self.decision = Decision(Outcome.ELECT, ready[0].node, reason="it serves")
            elif missing:
                self.decision = Decision(
                    Outcome.WAIT, None, tuple(missing), "they have not said what they hold"
                )
            else:
                said_here = [self.hellos[member] for member in view.members]
                self.decision = decide([each for each in said_here if each.node in self._nodes], self._nodes)
                self.elected = self.decision.node == self.member.node
        self._wake()

    # -- keeping, and handing over ---------------------------------------------------------------------

    def _keep(self, item: Delivered | View) -> None:
        self._kept.append(item)
        if not isinstance(item, View):
            self._kept_bytes += len(item[2])
            while self._kept_bytes > KEPT_BYTES and self.drops and not self.elected:
                self._drop()

    def _drop(self) -> None:
        item = self._kept.popleft()
        if isinstance(item, View):
            self.dropped = item.position
        else:
            self.dropped = item[0]
            self._kept_bytes -= len(item[2])
            if item[1] == self.member:
                self._spoken -= 1

    def cut_mark(self) -> CutMark:
        """Return the mark of a copy that is begun in the current view."""
        assert self.view is not None
        mark = ViewChange(list(self.view.members)).mark(self.view.id, 0)
        return CutMark(mark.view, mark.check)

    def foreign(self) -> int:
        """Return how many own frames the engine will get."""
        return self._spoken

    def attach(self, engine: Engine) -> None:
        """Hand over all that was kept, and from now on all that comes.

        Raises:
            Corrupt: the copy ends before what was kept begins. This member would skip events.
        """
        self._require_no_gap(engine.position)
        kept, self._kept = self._kept, deque()
        self._kept_bytes = 0
        for item in kept:
            if isinstance(item, View):
                engine.on_view(item)
            else:
                engine.on_deliver(*item)
        engine.resume(self.delivered)
        self._engine, engine.on_ended = engine, self._engine_ended
        if self.stable > BEGINNING:
            engine.on_stable(self.stable)
        if self.lost is not None:
            engine.on_lost(self.lost)

    def _require_no_gap(self, end: Position) -> None:
        if not self.elected and self.cut is not None and end < max(self.cut.position, self.dropped):
            begin = max(self.cut.position, self.dropped)
            raise Corrupt(f"the copy ends at {end}, not at {begin} or later; it is made again")

    def _engine_ended(self, reason: HoldfastError) -> None:
        """Note the end of the broker, also by its disk."""
        self.lost = self.lost or str(reason)
        self._wake()

    async def change(self) -> None:
        """Wait for a view, a hello, a mark or the loss."""
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
