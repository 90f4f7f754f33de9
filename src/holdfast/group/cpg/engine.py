"""The group on Corosync: views from announces, stability from words, a window from receipts.

A list of processes (a *confchg* of CPG) begins a *regrouping*. Every member announces its state, and the last
announce of the list makes the view (`forming`). Frames meanwhile are kept for the view. If another list comes
first, members that stay take them in the old view. They all have these frames, but a new process has not.
An event is delivered when a majority has received it, or with the next view (`_deliver_safe`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.errors import BadConfiguration, Closed, Corrupt, Misuse
from holdfast.group.cpg.carrier import Carrier, CarrierLost, Item, Listed, Process
from holdfast.group.cpg.forming import (
    GENERATION_SHIFT,
    OTHER_NODE,
    Dropped,
    Formed,
    Votes,
    agreed,
    form,
    silent,
)
from holdfast.group.cpg.inbox import Stream
from holdfast.group.cpg.library import Cpg
from holdfast.group.cpg.outbox import Outbox
from holdfast.group.cpg.progress import Progress
from holdfast.group.cpg.sending import Changes, Sender
from holdfast.group.cpg.wire import (
    Announce,
    Batch,
    Body,
    Evict,
    Exclude,
    Fragment,
    Frame,
    Word,
    pack,
    parse,
)
from holdfast.group.interface import (
    WINDOW_BYTES,
    GroupStats,
    Listener,
    Member,
    Position,
    View,
)
from holdfast.group.member import BaseGroup

logger = logging.getLogger("holdfast.group")

LEFT = "it left"
ITEMS_PER_TURN = 64
"""The most messages that one turn of the loop takes, so that other work is not starved."""
FULL_UNDER_WAY, PARTLY_FULL_UNDER_WAY = 8, 2
"""The most own frames under way while another one is sent."""
TICK_S, ANSWER_S, EVICT_S, LEAVE_S = 0.25, 5.0, 10.0, 20.0


class CpgGroup(BaseGroup):
    """A member of a group on Corosync.

    `nodes` are the Corosync node ids that have a vote. `incarnation` must be higher in every life of the
    node. `view_floor` is the highest view id that the node has ever stored. A member is evicted if it keeps
    another one waiting in `drain`, and makes no progress for `evict_s`; None never evicts. A process that
    does not announce itself within `answer_s` is left out of the view.

    Example:
        >>> group = CpgGroup(name="holdfast", node=1, nodes=[1, 2, 3], incarnation=7, view_floor=0)
        >>> print(group.member)
        1.7
    """

    def __init__(
        self,
        name: str,
        node: int,
        nodes: Sequence[int],
        incarnation: int,
        view_floor: int,
        explicit_holds: bool = True,
        window_bytes: int = WINDOW_BYTES,
        evict_s: float | None = EVICT_S,
        answer_s: float = ANSWER_S,
        carrier: Carrier | None = None,
    ) -> None:
        super().__init__(Member(node, incarnation), explicit_holds)
        if node not in nodes:
            raise Misuse(f"node {node} is not among the nodes with a vote, {sorted(nodes)}; add it")
        if len(set(nodes)) > OTHER_NODE:
            raise Misuse(f"{len(set(nodes))} nodes have a vote; at most {OTHER_NODE} can")
        self._carrier = carrier or Cpg(name)
        self._votes = Votes(tuple(sorted(set(nodes))))
        self._evict_s = evict_s
        self._answer_s = answer_s
        self._me: Process | None = None
        self._generation = view_floor >> GENERATION_SHIFT
        self._cut: Position | None = None
        self._doomed: str | None = None
        # The list of processes, and what belongs to its regrouping.
        self._listed: frozenset[Process] = frozenset()
        self._excluded: frozenset[Process] = frozenset()
        self._regrouping = False
        self._regrouping_since = 0.0
        self._announces: dict[Process, Announce] = {}
        self._incarnations: dict[Process, int] = {}
        self._dropping: Dropped | None = None
        self._kept: list[tuple[Process, Batch | Fragment | Evict, int]] = []
        """Frames since the list, and their sizes."""
        self._resend = False
        # The view.
        self._members: dict[Process, Member] = {}
        self._streams: dict[Process, Stream] = {}
        self._pending: deque[tuple[Member, bytes]] = deque()
        """Events of the view that were received, and are not yet known to a majority."""
        self._outbox = Outbox()
        self._progress = Progress(self._member, window_bytes)
        self._sender: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changes = Changes()
        self._tick: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._taking = False
        self._word_changed = False
        self._strangers: set[Process] = set()

    # -- the interface ---------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._begin(listener)
        self._loop = asyncio.get_running_loop()
        self._sender = Sender(self._loop, self._carrier.send, self._next_frame, self._lose)
        try:
            self._me = await self._carrier.join(self._arrived)
        except BaseException:
            self._carrier.close()
            raise
        if self._me.node != self._member.node:
            self._carrier.close()
            raise Misuse(
                f"the Corosync of this machine is node {self._me.node}, not {self._member.node}; correct the"
                f" node's number in the configuration"
            )
        self._tick = self._loop.call_later(TICK_S, self._on_tick)
        self._arrived()
        while self._view is None and self._ended is None:
            await self._changes.next()
        if self._view is None:
            if self._dropping is not None and self._dropping.misfits:
                raise BadConfiguration(self._dropping.reason)  # another try would disturb the others in vain
            raise Closed(f"member {self._member} is out of the group: {self._ended}")

    async def leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):  # a stopped daemon orders nothing, and does not answer
                while self._ended is None and self._has_own_under_way():
                    await self._changes.next()
                if self._ended is None:
                    self._ended = LEFT
                    self._stop()
                    await self._carrier.leave()
        except TimeoutError:
            logger.warning("%s left: Corosync did not answer for %s s", self._member, LEAVE_S)
        finally:  # also if cancelled: else the process stays in the group, and its next life cannot join
            self._ended = self._ended or LEFT
            self._end()

    def _has_own_under_way(self) -> bool:
        return len(self._outbox) > 0 or self._member in [member for member, _ in self._pending]

    def mcast(self, event: bytes) -> None:
        self._require_ready(event)
        self._outbox.add(bytes(event))
        self._progress.submitted(len(event))
        self._flush_soon()

    @property
    def blocked(self) -> bool:
        return self._progress.blocked and self._ended is None

    async def drain(self) -> None:
        while self.blocked:
            await self._changes.next()
        if self._ended is not None and self._ended != LEFT:
            raise Closed(f"member {self._member} is out of the group: {self._ended}")

    def evict(self, member: Member, reason: str = "an administrator evicted it") -> None:
        """See `Group.evict`."""
        self._require_ready(b"")
        assert self._view is not None
        if member not in self._view.members:
            names = ", ".join(map(str, self._view.members))
            raise Misuse(f"member {member} is not in view {self._view.id}; it has {names}")
        if not self._may_evict(member):
            raise Misuse(
                f"without member {member} there is no majority of the votes; start another node first"
            )
        self._outbox.add_evict(member, reason)
        self._flush_soon()

    def stats(self) -> GroupStats:
        waiting = sum(size for _, _, size in self._kept) + sum(len(event) for _, event in self._pending)
        sent = self._progress.in_flight_bytes
        return GroupStats(self._member, self._view, self._delivered, self._held, self._stable, sent, waiting)

    # -- messages of the carrier -----------------------------------------------------------------------

    def _arrived(self) -> None:
        """Take some messages; the rest come in the next turn."""
        self._turn = None
        self._taking = True
        try:
            for _ in range(ITEMS_PER_TURN):
                item = self._carrier.take() if self._ended is None else None
                if item is None:
                    break
                self._take(item)
            else:
                if self._loop is not None and self._ended is None:
                    self._turn = self._loop.call_soon(self._arrived)
            self._end_turn()
        except CarrierLost as lost:
            self._lose(str(lost))
        finally:
            self._taking = False

    def _end_turn(self) -> None:
        """Tell what a majority has, now that this turn's words are known."""
        if self._ended is None:
            self._note_word()
            self._deliver_safe()
        if self._ended is None:
            self._note_word()
            self._tell_stable(self._majority_holds())
            self._changes.tell()

    def _note_word(self) -> None:
        if self._word_changed:
            self._word_changed = False
            self._progress.own(Word(self._received, self._held), self._time())
            self._flush_soon()

    @property
    def _received(self) -> Position:
        return Position(self._delivered.view, self._delivered.index + len(self._pending))

    def _deliver_safe(self) -> None:
        """Deliver events that a majority has received.

        A member that is cut off may have received events that no other member ever gets. It does not deliver
        them, so no two members ever deliver different events at one position (I210).
        """
        safe = (
            self._progress.majority_received(self._votes) if self._primary and not self._regrouping else None
        )
        while safe is not None and self._pending and self._delivered < safe and self._ended is None:
            self._deliver(*self._pending.popleft())

    def _take(self, item: Item) -> None:
        if isinstance(item, Listed):
            self._take_list(item.processes)
            return
        if item.sender == self._me and self._sender is not None:
            self._sender.came_back()
        if item.sender not in self._listed or item.sender in self._excluded:
            return
        try:
            frame = parse(item.data)
        except Corrupt as error:
            if item.sender not in self._strangers:
                self._strangers.add(item.sender)
                logger.warning("%s: messages of %s are dropped: %s", self._member, item.sender, error)
            return
        self._take_frame(item.sender, frame, len(item.data))

    def _take_frame(self, sender: Process, frame: Frame, size: int) -> None:
        body = frame.body
        if isinstance(body, Announce):
            self._take_announce(sender, frame.incarnation, body)
        elif isinstance(body, Exclude):
            self._take_exclude(body)
        elif self._regrouping:
            self._kept.append((sender, body, size))
        else:
            self._take_body(sender, body)
            member = self._members.get(sender)
            if member is not None and self._ended is None:
                self._progress.heard(member, frame.word, self._time())

    def _take_body(self, sender: Process, body: Batch | Fragment | Evict) -> None:
        """Deliver what a sender of this view has sent."""
        stream = self._streams.get(sender)
        if stream is None or self._view is None or not self._view.quorate:
            return
        for item in stream.take(body):
            if self._ended is not None:
                return
            if sender == self._me:
                self._own_came_back(item)
            if isinstance(item, Evict):
                self._apply_evict(item)
            else:
                self._pending.append((self._members[sender], item))
                self._word_changed = True

    def _own_came_back(self, item: bytes | Evict) -> None:
        self._outbox.delivered(self._outbox.first)
        if not isinstance(item, Evict):
            assert self._view is not None
            self._progress.placed(Position(self._view.id, self._received.index + 1), len(item), self._time())

    # -- regrouping ------------------------------------------------------------------------------------

    def _take_list(self, processes: frozenset[Process]) -> None:
        assert self._me is not None
        if self._me not in processes:
            self._lose("Corosync took it off the list of the group")
            return
        self._listed = processes
        self._excluded &= processes
        self._announces = {}
        self._incarnations = {}
        if self._doomed is not None:
            self._lose(self._doomed)
            return
        if self._quorate_now():
            self._take_kept(evictions=False)  # in the old view
        self._streams = {process: self._streams[process] for process in self._streams if process in processes}
        self._regroup()

    @property
    def _counted(self) -> frozenset[Process]:
        return self._listed - self._excluded

    def _quorate_now(self) -> bool:
        return self._votes.quorate([process.node for process in self._counted])

    def _regroup(self) -> None:
        """Announce this member for a view of the current list."""
        if self._ended is not None:
            return
        self._kept = []
        self._regrouping = True
        self._regrouping_since = self._time()
        assert self._sender is not None
        self._sender.forget()
        # A new member has never seen the begin of an event that is not whole. So all members drop it, and
        # its sender sends it again.
        for process, stream in self._streams.items():
            self._resend |= stream.drop_partial() and process == self._me
        self._raise_generation(self._generation + 1)

    def _raise_generation(self, generation: int) -> None:
        """Announce again, for a new generation of the view or another list.

        All members announce the same generation before the view is made. So each member that could know the
        view knows its generation, and no later view has the same id.
        """
        self._generation = generation
        self._dropping = None
        if self._primary is not None and self._doomed is None and not self._quorate_now():
            nodes = sorted({process.node for process in self._counted})
            votes = list(self._votes.nodes)
            self._doomed = f"nodes {nodes} are no majority of {votes}, so their view is not quorate"
        self._send_control(self._announcement())

    @property
    def _primary(self) -> View | None:
        return self._view if self._view is not None and self._view.quorate else None

    def _announcement(self) -> Announce:
        primary = self._primary
        return Announce(
            generation=self._generation,
            processes=sorted(self._counted),
            excluded=sorted(self._excluded),
            primary=primary.id if primary is not None else 0,
            members=list(primary.members) if primary is not None else [],
            index=self._received.index if primary is not None else 0,
            doomed=self._doomed is not None,
            complete=self._cut is not None and self._held >= self._cut,
            next_number=self._outbox.first,
            votes=list(self._votes.nodes),
        )

    def _take_announce(self, sender: Process, incarnation: int, announce: Announce) -> None:
        if not self._regrouping:
            return
        self._announces[sender] = announce
        self._incarnations[sender] = incarnation
        unknown = (frozenset(announce.excluded) & self._listed) - self._excluded
        if unknown:
            self._exclude(unknown, "the others excluded it")
        elif announce.generation > self._generation:
            self._raise_generation(announce.generation)
        if self._ended is None:
            self._try_to_form()

    def _try_to_form(self) -> None:
        counted = self._counted
        if not agreed(counted, self._announces):
            return
        outcome = form(
            self._votes, {process: self._announces[process] for process in counted}, self._incarnations
        )
        if isinstance(outcome, Formed):
            self._enter(outcome)
        else:
            # Wait until the dropped have left: that is another list.
            self._dropping = outcome
            if self._me in outcome.processes:
                self._lose(outcome.reason)

    def _enter(self, formed: Formed) -> None:
        """Install a view, then deliver what was kept since its list."""
        view = formed.view
        pending, self._pending = self._pending, deque()
        for member, event in pending if view.quorate and self._primary is not None else ():
            # All that stay have them, and so have all that delivered them: `forming` vouches for it.
            self._deliver(member, event)
        if self._ended is not None:
            return
        self._members = formed.members
        self._streams = self._new_streams(formed)
        self._regrouping = False
        complete = [each for process, each in formed.members.items() if self._announces[process].complete]
        self._progress.enter(view, self._time(), complete)
        if view.quorate and self._cut is None:
            self._cut = view.position
        kept, self._kept = self._kept, []
        self._install(view)
        if self._doomed is not None:
            self._lose(self._doomed)
        if self._ended is not None:
            return
        if self._resend:
            # Of the first event a part was dropped, so receivers drop those behind it, too.
            self._resend = False
            self._outbox.rewind()
        self._kept = kept
        self._take_kept(evictions=True)
        self._flush_soon()

    def _new_streams(self, formed: Formed) -> dict[Process, Stream]:
        """Return where the events of each member go on, as its announce says."""
        return {process: Stream(self._announces[process].next_number) for process in formed.members}

    def _take_kept(self, evictions: bool) -> None:
        kept, self._kept = self._kept, []
        for number, (sender, body, _) in enumerate(kept):
            if self._ended is not None:
                return
            if isinstance(body, Evict) and not evictions:
                stream = self._streams.get(sender)
                if stream is not None and stream.take(body) and sender == self._me:
                    self._outbox.delivered(body.number)
                continue
            self._take_body(sender, body)
            if evictions and self._regrouping:  # one of them evicted a member
                self._kept += kept[number + 1 :]
                return

    # -- exclusion -------------------------------------------------------------------------------------

    def _take_exclude(self, body: Exclude) -> None:
        """Leave out processes that did not answer. A proposal counts only for its own list."""
        if self._regrouping and body.processes == sorted(self._counted):
            self._exclude(
                frozenset(body.targets) & self._counted, "it did not answer while a view was formed"
            )
            if self._ended is None:
                self._try_to_form()

    def _exclude(self, processes: frozenset[Process], reason: str) -> None:
        self._excluded |= processes
        if self._me in processes:
            self._lose(reason)
        else:
            self._raise_generation(self._generation + 1)

    def _may_evict(self, member: Member) -> bool:
        assert self._view is not None
        return self._votes.quorate([each.node for each in self._view.members if each != member])

    def _apply_evict(self, order: Evict) -> None:
        """Go on without a member: all do it at the same place in the order."""
        target = next((process for process, member in self._members.items() if member == order.target), None)
        if target is None or target in self._excluded or not self._may_evict(order.target):
            return
        logger.warning("%s: member %s is evicted: %s", self._member, order.target, order.reason)
        if target == self._me:
            self._lose(f"it was evicted: {order.reason}")
            return
        self._excluded |= {target}
        self._streams.pop(target, None)
        self._announces = {}
        self._incarnations = {}
        self._regroup()

    def _on_tick(self) -> None:
        """Look for members that do not answer, or do not get on."""
        if self._ended is not None or self._loop is None:
            return
        self._tick = self._loop.call_later(TICK_S, self._on_tick)
        now = self._time()
        if self._regrouping and now - self._regrouping_since > self._answer_s:
            self._regrouping_since = now
            self._propose_exclusion()
        elif not self._regrouping and self._evict_s is not None and self._view is not None:
            for member in self._progress.hopeless(now, self._evict_s):
                if self._may_evict(member):
                    self._outbox.add_evict(member, f"it got no further for {self._evict_s} s or more")
            self._flush_soon()

    def _propose_exclusion(self) -> None:
        targets = silent(self._counted, self._announces)
        if not targets and self._dropping is not None:
            targets = sorted(self._dropping.processes)
        if targets and self._me not in targets:
            self._send_control(Exclude(sorted(self._counted), targets))

    # -- stability and the window ----------------------------------------------------------------------

    def _majority_holds(self) -> Position:
        """Return the highest position that a majority holds, by words of this view.

        Nothing becomes stable between a list and its view. Members that left may have other events at the
        same positions.
        """
        view = self._primary
        if view is None or self._regrouping:
            return self._stable
        return self._progress.majority_holds(self._votes) or self._stable

    def _holds_changed(self) -> None:
        # Once per turn: a turn delivers hundreds of events.
        self._word_changed = True
        if not self._taking and self._turn is None and self._loop is not None:
            self._turn = self._loop.call_soon(self._arrived)

    # -- sending ---------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if self._sender is not None:
            self._sender.soon()

    def _send_control(self, body: Announce | Exclude) -> None:
        assert self._sender is not None
        self._sender.control(self._packed(body))

    def _packed(self, body: Body) -> bytes:
        return pack(Frame(self._member.incarnation, Word(self._received, self._held), body))

    def _next_frame(self, under_way: int) -> tuple[bytes, Callable[[], None]] | None:
        """Return the next frame and the call after its sending, or None."""
        if self._regrouping or self._ended is not None or self._primary is None:
            return None
        body = self._outbox.peek()
        if body is not None:
            full = isinstance(body, Fragment) or self._outbox.unsent_bytes >= self._outbox.batch_bytes
            if under_way >= (FULL_UNDER_WAY if full else PARTLY_FULL_UNDER_WAY):
                return None
            return self._packed(body), self._sent_events
        if self._progress.untold and not under_way:
            return self._packed(Batch(self._outbox.next_number, [])), self._sent_word
        return None

    def _sent_events(self) -> None:
        self._outbox.sent()
        self._sent_word()

    def _sent_word(self) -> None:
        self._progress.untold = False

    # -- the end ---------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        if self._turn is not None:
            self._turn.cancel()
        if self._sender is not None:
            self._sender.stop()
        self._kept = []
        self._pending.clear()
        self._changes.tell()

    def _end(self) -> None:
        self._stop()
        self._carrier.close()

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()
