"""Take turns with other members: which of them dispatches a subscription.

```
            OwnerChanged: this member                     release: halt, then OwnershipRelease
   other ───────────────────────────► owner ───────────────────────────────────────► releasing
     ▲                                  ▲  refused, not sent: dispatch again             │
     │                                  └────────────────────────────────────────────────┤
     └────────────────────────────────────────────── OwnerChanged: another member ◄──────┘
```

Only the owner reads. It stops before it submits the release, and the next owner begins when the release is
stable. So two members never dispatch at once (**I68**). A member that is not the owner returns what its
consumers give back (`OwnershipReturn`), and asks for turns when they have permits again (`OwnershipAsk`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._core import Dispatch
from holdfast.broker.dispatch.asking import Asks, refusal
from holdfast.broker.dispatch.types import Submit
from holdfast.broker.events import (
    AckOffer,
    AckOffered,
    Answer,
    ConsumersChanged,
    HeldReturned,
    MoveAsked,
    Notice,
    OwnerAnswered,
    OwnerChanged,
    OwnershipAsk,
    OwnershipRelease,
    OwnershipReturn,
    OwnershipWanted,
    RedeliveryNote,
    active_consumer_member,
)
from holdfast.broker.ranges import Ranges, meeting
from holdfast.broker.state import COUNTS_MAX
from holdfast.errors import HoldfastError, NotFound
from holdfast.group import Member

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.dispatch.acking import Acking
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.dispatch.keys import Keys
    from holdfast.broker.state import SubscriptionState

ALL = 1 << 62
"""More entries than any table has."""
COUNTS_S = 0.2
"""Time for which changed counts of redeliveries are collected. A crash forgets what it falls into."""

TURN_LEAST_S = 0.001
RANGE_S = 20e-6
"""Time of a turn for each range of held entries: every member writes and applies the ranges of a release."""

Standing = Literal["owner", "releasing", "other"]


class Served(Protocol):
    """A dispatcher, as its tenure drives it."""

    @property
    def consumers(self) -> int: ...
    @property
    def reset_number(self) -> int: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def elsewhere(self) -> Ranges: ...
    @property
    def is_busy(self) -> bool: ...

    def take(self, elsewhere: Ranges, hashes: bytes = b"") -> None:
        """Begin to dispatch."""

    def halt(self) -> None:
        """Stop to dispatch."""

    def consumers_changed(self) -> None:
        """Split the keys of a key_shared subscription anew."""

    def returned(self, ranges: Ranges) -> None:
        """Deliver entries that another member returned."""


class Tenure:
    """The part of this member in the ownership of one subscription.

    Example:
        >>> from holdfast.broker.state import SubscriptionState
        >>> from holdfast.ledger import AckState
        >>> billing = SubscriptionState(1, 1, "billing", AckState(), owner_epoch=0)
        >>> tenure = Tenure(billing, Member(1, 1), lambda: 3, lambda event: None, turn_s=0.1)
        >>> tenure.standing, tenure.waiting
        ('other', [])
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        member: Member,
        members: Callable[[], int],
        submit: Submit,
        turn_s: float,
        asks: Asks | None = None,
    ) -> None:
        self.subscription = subscription
        self.member = self._member = member
        self._members = members
        """Returns the number of members of the group."""
        self._submit = submit
        self._asks = asks
        self._turn_s = max(turn_s, TURN_LEAST_S)
        self.standing: Standing = "other"
        self.epoch = 0
        """The number of the last change of owner that is stable."""
        self._served: Served
        self._table: Dispatch
        self._acking: Acking | None = None
        self._keys: Keys | None = None
        self._hashes = b""
        """Of the entries elsewhere, as of the last decision."""
        self._heavy_s = 0.0
        """The least length of a turn, by the ranges of the last release."""
        self._gave = False
        """It has dispatched something in this turn."""
        self._turn_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._looking = False
        self._counting: asyncio.TimerHandle | None = None
        self._noted = 0
        """How often counts had risen when they were noted; -1: all are to be noted again."""
        self._closed = False

    def serve(
        self, served: Served, table: Dispatch, acking: Acking | None = None, keys: Keys | None = None
    ) -> None:
        """Set the dispatcher, its tables, its acknowledgements and its keys."""
        self._served, self._table, self._acking, self._keys = served, table, acking, keys
        if acking is not None:
            acking.is_foreign = self.is_foreign
            acking.offer = None if self._asks is None else self.offer

    def close(self) -> None:
        """Note the counts, stop the timers, and submit nothing more."""
        if self._counting is not None:
            self._counting.cancel()
            self._note_counts()
        self._closed = True
        self._stop_timer()

    @property
    def waiting(self) -> list[Member]:
        """Other members that want to dispatch."""
        subscription = self.subscription
        if not subscription.takes_turns:
            due = active_consumer_member(subscription)
            return [] if due is None or due == self._member else [due]
        if subscription.type == "key_shared" and self._keys is not None and self._table.wanted > 0:
            return [each for each in self._keys.members_due() if each not in subscription.unready]
        return sorted(
            subscription.attached.keys() - subscription.unready - subscription.idle - {self._member}
        )

    def is_foreign(self) -> bool:
        """Return whether another member owns the subscription."""
        return self.subscription.owner not in (None, self._member)

    # -- stable events ---------------------------------------------------------------------------------

    def changed(self, notice: OwnerChanged) -> None:
        """Follow a decision on the owner."""
        if notice.undelivered is not None and notice.reset_number == self._served.reset_number:
            self._table.keep_undelivered(notice.undelivered)
        before, self.epoch = self.standing, notice.epoch
        self._stop_timer()
        if notice.owner == self._member:
            self._begin(notice.elsewhere, notice.hashes, again=before == "owner")
        else:
            self.standing = "other"
            if before == "owner":  # its last consumer has left
                self._served.halt()
            self.looked()

    def returned(self, notice: HeldReturned) -> None:
        """Follow a return of entries by another member."""
        if notice.reset_number == self._served.reset_number:
            self._learn(notice.reset_number, notice.counts)
            self._served.returned(notice.ranges)

    def consumers_changed(self) -> None:
        """Follow consumers of a key_shared subscription, also of other members."""
        self._served.consumers_changed()

    def _learn(self, reset_number: int, counts: Ranges) -> None:
        if reset_number != self._served.reset_number:
            return
        acks, table = self.subscription.acks, self._table
        for ordinal, count in counts:
            if count > table.count_of(ordinal) and not acks.is_acked(ordinal):
                table.set_count(ordinal, count)

    def _begin(self, elsewhere: Ranges, hashes: bytes, again: bool = False) -> None:
        self.standing = "owner"
        self._learn(self.subscription.reset_number, sorted(self.subscription.counts.items()))
        self._gave = self._turn_over = self._asking = False
        self._noted = -1 if self._table.counted_entries else self._table.counts_risen
        if not (again and self._table.single):  # then nothing changes: the active consumer goes on
            self._hashes = hashes
            self._served.take(elsewhere, hashes)
        self._watch()

    # -- the owner -------------------------------------------------------------------------------------

    def gave(self) -> None:
        """Note that entries were delivered."""
        self._gave = True
        if self._members() > 1 and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        self.looked()

    def looked(self) -> bool:
        """Do what is due after any change here; return whether this member dispatches."""
        if self._counting is None and self._table.counts_risen != self._noted and self.standing == "owner":
            self._counting = asyncio.get_running_loop().call_later(COUNTS_S, self._note_counts)
        if self._members() > 1 and not self._closed:
            if self.standing == "owner":
                self._consider()
            else:
                self.give_back()
                self._ask()
        return self.standing == "owner"

    def _note_counts(self) -> None:
        """Note counts of redeliveries that the state does not know (**I273**)."""
        self._counting = None
        if self._closed or self.standing != "owner":
            return  # a release or a return has carried them
        self._noted, known = self._table.counts_risen, self.subscription.counts
        counts = [each for each in self._table.counts(COUNTS_MAX) if known.get(each[0], 0) < each[1]]
        if counts:
            number = self._served.reset_number
            self._send(RedeliveryNote(self.subscription.id, number, counts), self._not_noted)

    def _not_noted(self) -> None:
        self._noted = -1

    def part(self) -> None:
        """Pass on what only this member knows: its last consumer leaves.

        The event that follows moves the ownership, and carries nothing.
        """
        subscription, table = self.subscription, self._table
        known = table.counted_entries or subscription.reach > subscription.acks.acked_to
        if self.standing == "owner" and known and self._members() > 1 and not self._closed:
            self._release(idle=False)

    def _consider(self) -> None:
        """Release the subscription if another member is due."""
        if not self.waiting:
            return
        idle, work = self._table.wanted == 0, self._served.has_work
        began = self._gave or self._turn_over  # else its consumers may be about to give permits
        if not self.subscription.takes_turns:
            self._release(idle=False)
        elif not idle and self.subscription.type == "key_shared" and not self._served.is_busy:
            self._release(idle=False)  # what is left here is for consumers of other members
        elif (idle and work and began and self._heavy_s <= self._turn_s) or (
            self._turn_over and (self._gave or work)
        ):
            self._release(idle)
        elif not self._turn_over:
            self._watch()

    def _watch(self) -> None:
        """Limit the turn, if another member waits."""
        if self._timer is None and self._members() > 1 and self.waiting and not self._closed:
            turn_s = max(self._turn_s, self._heavy_s)
            self._timer = asyncio.get_running_loop().call_later(turn_s, self._turn_ends)

    def _turn_ends(self) -> None:
        self._timer = None
        self._turn_over = True
        self.looked()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self, idle: bool) -> None:
        self._stop_timer()
        self.standing = "releasing"
        self._served.halt()
        table, epoch, keys = self._table, self.epoch, self._keys
        keyed = keys is not None and table.keyed
        due = self.waiting if keyed else []
        held = table.held()
        self._heavy_s = len(held) * RANGE_S
        event = OwnershipRelease(
            self.subscription.id,
            epoch,
            self._member,
            self._served.reset_number,
            held,
            table.counts(COUNTS_MAX),
            table.undelivered_ranges(),
            idle,
            table.held_hashes() if keyed else b"",
            keys.full() if keyed and keys is not None else [],
            next((each for each in due if each > self._member), next(iter(due), None)),
        )
        self._send(event, lambda: self._not_released(epoch))

    def _not_released(self, epoch: int) -> None:
        """Dispatch again: the release was refused, or could not be sent."""
        if self.standing == "releasing" and self.epoch == epoch:
            self._begin(self._served.elsewhere, self._hashes)

    # -- other members ---------------------------------------------------------------------------------

    def give_back(self, everything: bool = False) -> None:
        """Return entries that came back from consumers here; with `everything` all that they hold."""
        table = self._table
        if everything:
            held = table.held()
            table.rewind()
            table.put_back(held)
        if table.replay_entries == 0 or self._closed:
            return
        runs, number = table.take_replay(ALL, ALL), self._served.reset_number
        counts = self._counts_in(runs)
        event = OwnershipReturn(self.subscription.id, self._member, number, runs, counts)
        self._send(event, lambda: self._not_returned(runs, number))

    def _counts_in(self, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the counts of entries in runs.

        One entry costs one look, however many have counts.
        """
        table = self._table
        if sum(end - first for first, end in runs) > table.counted_entries:
            counts = table.counts(COUNTS_MAX)
            return [each for each in counts if meeting(runs, each[0], each[0] + 1)]
        found = ((each, table.count_of(each)) for first, end in runs for each in range(first, end))
        return list(islice((each for each in found if each[1]), COUNTS_MAX))

    def _not_returned(self, runs: list[tuple[int, int]], reset_number: int) -> None:
        if self.standing != "owner" and reset_number == self._served.reset_number:
            self._table.put_back(runs)
            self._later()

    def offer(
        self, ranges: list[tuple[int, int]], bits: list[tuple[int, bytes]], reset_number: int, receipt: bool
    ) -> asyncio.Future[Any] | None:
        """Offer acknowledgements to the owner; with `receipt` return a future that has its answer."""
        id_, member = self.subscription.id, self._member
        if receipt and self._asks is not None:
            what = f"an offer of acknowledgements of subscription {self.subscription.name}"
            return self._asks.ask(
                lambda number: AckOffer(id_, member, number, reset_number, ranges, bits), what
            )
        self._send(AckOffer(id_, member, 0, reset_number, ranges, bits), lambda: None)
        return None

    def offered(self, offer: AckOffer) -> asyncio.Future[None] | None:
        """Acknowledge what another member offers, as far as it was delivered since the last reset."""
        assert self._acking is not None
        return self._acking.offered(offer.ranges, offer.bits, offer.reset_number, offer.ask > 0)

    def _ask(self) -> None:
        if self.standing != "other" or self._asking or self._table.wanted == 0:
            return
        opened = self._keys.opened() if self._keys is not None and self.subscription.full else []
        if opened or self._member in self.subscription.idle:
            self._asking = True
            event = OwnershipAsk(self.subscription.id, self._member, opened)
            self._send(event, self._later, self._asked)

    def _asked(self) -> None:
        self._asking = False

    def _later(self) -> None:
        """Try again after a while: without a quorum nothing can be submitted."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._turn_ends)

    def _send(self, event: Any, failed: Callable[[], None], ended: Callable[[], None] = lambda: None) -> None:
        """Submit an event.

        `ended` is called when its outcome is known, then `failed` if it has no effect.
        """

        def done(future: asyncio.Future[Any]) -> None:
            ended()
            error = None if future.cancelled() else future.exception()
            if error is not None and not self._closed:
                failed()

        try:
            future = self._submit(event)
        except HoldfastError as error:  # the broker ends, or the event is larger than a frame
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        future.add_done_callback(done)


class Ownership:
    """Passes stable decisions on owners to the dispatchers of a broker, and requests to owners."""

    def __init__(self, broker: Broker, carry_out: Callable[[MoveAsked], Awaitable[Answer]]) -> None:
        self._broker = broker
        self._carry_out = carry_out
        """Carries out a move that another member has asked for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.asks = Asks(broker.group.member, broker.engine.submit)
        """Requests of this member to owners."""

    def tenure(self, subscription: SubscriptionState) -> Tenure:
        """Return the part of this member in the ownership of a subscription."""
        broker = self._broker
        return Tenure(
            subscription,
            broker.group.member,
            lambda: len(broker.machine.state.members),
            broker.engine.submit,
            broker.options.ownership_turn_s,
            self.asks,
        )

    def viewed(self) -> None:
        """Follow a view: those that left answer no more."""
        self.asks.viewed(set(self._broker.machine.state.members))

    def ended(self, reason: HoldfastError) -> None:
        """End all requests: the broker ends."""
        self.asks.ended(reason)
        for task in self._tasks:
            task.cancel()

    def noticed(self, notice: Notice) -> None:
        """Follow a stable notice."""
        if isinstance(notice, OwnerChanged):
            mine = notice.owner == self._broker.group.member
            tenure = self._tenure_of(notice.subscription, create=mine)
            if tenure is not None:
                tenure.changed(notice)
        elif isinstance(notice, ConsumersChanged):
            tenure = self._tenure_of(notice.subscription)
            if tenure is not None:
                tenure.consumers_changed()
        elif isinstance(notice, OwnershipWanted):
            tenure = self._tenure_of(notice.subscription)
            if tenure is not None and notice.subscription.type == "key_shared":
                tenure.consumers_changed()
            elif tenure is not None:
                tenure.looked()
        elif isinstance(notice, HeldReturned):
            tenure = self._tenure_of(notice.subscription)
            if tenure is not None:
                tenure.returned(notice)
        elif isinstance(notice, OwnerAnswered):
            self.asks.answered(notice)
        elif isinstance(notice, AckOffered | MoveAsked) and notice.answerer == self._broker.group.member:
            self._asked(notice)

    def _asked(self, notice: AckOffered | MoveAsked) -> None:
        """Carry out a request of a member, and answer it."""
        if isinstance(notice, MoveAsked):
            task = asyncio.get_running_loop().create_task(self._move(notice), name="a move for a member")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        offer = notice.offer
        tenure = self._tenure_of(notice.subscription, create=True)
        if tenure is None:
            self.asks.answer(offer.member, offer.ask, refusal(NotFound("the subscription was deleted")))
            return
        receipt = tenure.offered(offer)
        if receipt is not None:
            receipt.add_done_callback(lambda done: self._acknowledged(offer, done.exception()))

    def _acknowledged(self, offer: AckOffer, error: BaseException | None) -> None:
        self.asks.answer(offer.member, offer.ask, Answer() if error is None else refusal(error))

    async def _move(self, notice: MoveAsked) -> None:
        try:
            answer = await self._carry_out(notice)
        except Exception as error:  # the member that asked reports it
            answer = refusal(error)
        self.asks.answer(notice.asked.member, notice.asked.ask, answer)

    def _tenure_of(self, subscription: SubscriptionState, create: bool = False) -> Tenure | None:
        topic = self._broker.topics.get(subscription.topic)
        if topic is None:
            return None
        dispatcher: Dispatcher | None = topic.dispatcher_of(subscription)
        if dispatcher is None and create:
            with contextlib.suppress(NotFound):  # deleted meanwhile
                dispatcher = self._broker.dispatcher(topic, subscription)
        return None if dispatcher is None else dispatcher.tenure
