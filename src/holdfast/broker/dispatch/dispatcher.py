"""The dispatcher of a subscription: delivers entries to consumers.

Promises upward: a consumer gets messages only within its permits. It owns a message until it acknowledges it,
gives it back, or leaves. After a reset was reported, no message from before the reset arrives, and no earlier
acknowledgement has an effect.

Needs from below: a topic that reads, a cursor that events change, and a `submit` whose future is done when an
event is stable. Work per entry is done in the core (`_core.Dispatch`), not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast._core import Batch, Dispatch, Entries
from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.acknowledging import Acknowledging
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.claims import Claims
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.looking import Looking
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.dispatch.pacing import Pace
from holdfast.broker.dispatch.read_loops import Reading, Runs, Throttle
from holdfast.broker.dispatch.redelivery import Redelivery
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.revision import Revision, RevisionController
from holdfast.broker.dispatch.schedule import Scheduling, Times
from holdfast.broker.dispatch.types import (
    Cursor,
    DispatchOptions,
    Endpoint,
    Submit,
    TopicReader,
    require_options,
    require_view,
)
from holdfast.broker.events import Ack
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.ranges import Ranges, common, without
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Busy, Closed, Misuse
from holdfast.system import Clock, Randomness


class Dispatcher(Acknowledging):
    """Serves one subscription: reads entries, delivers them, and knows which consumer holds which.

    Example:
        >>> import asyncio
        >>> from holdfast._core import encode_messages, parse_run, seal_block
        >>> from holdfast.broker.dispatch.volatile import VolatileSubscription
        >>> from holdfast.system import SystemClock, SystemRandomness
        >>> class Three:
        ...     name, first, visible = "orders", 0, 3
        ...     async def read(self, ordinal, count_max, size_max):
        ...         entries = encode_messages([b"rope", b"hemp", b"line"], "producer", 0, 0)
        ...         blocks = [seal_block(2, number, 0, entry) for number, entry in enumerate(entries)]
        ...         padded = [block + bytes(-len(block) % 8) for block in blocks]
        ...         return parse_run(1, 0, ordinal, b"", b"".join(padded[ordinal:ordinal + count_max]))
        >>> class Printer:
        ...     def deliver(self, batch): print([message.data for message in batch])
        ...     def cleared(self, reset_number): print("cleared", reset_number)
        ...     active = failed = closed = lambda self, told: None
        >>> async def main() -> None:
        ...     topic = Three()
        ...     cursor = VolatileSubscription(topic, -1, "reader", start=0)
        ...     dispatcher = Dispatcher(topic, cursor, cursor.submit, SystemClock(), SystemRandomness())
        ...     consumer = dispatcher.add_consumer(Printer(), "one", type="exclusive")
        ...     dispatcher.flow(consumer, 2)
        ...     await asyncio.sleep(0.01)
        ...     await dispatcher.reset(1)
        ...     dispatcher.flow(consumer, 10)
        ...     await asyncio.sleep(0.01)
        ...     dispatcher.close(Exception("done"))
        >>> asyncio.run(main())
        [b'rope', b'hemp']
        cleared 1
        [b'hemp', b'line']
    """

    def __init__(
        self,
        topic: TopicReader,
        subscription: Cursor,
        submit: Submit,
        clock: Clock,
        random: Randomness,
        options: DispatchOptions | None = None,
        throttle: Throttle | None = None,
        tenure: Tenure | None = None,
        times: Callable[[], Times] | None = None,
        compacted: Callable[[], CompactedReading] | None = None,
    ) -> None:
        self.options = options or DispatchOptions()
        self._topic = topic
        self._begin_compacted = compacted
        self._cursor = subscription
        self._clock = clock
        self._type: SubscriptionType | None = None
        self._consumers: dict[int, Attached] = {}
        self._closed: Exception | None = None
        self._table = Dispatch(self.options.turn_entries)
        self._table.unacked_max = self.options.unacked_max
        self._handed_messages = self._handed_bytes = 0
        self._resetting = Resetting(
            subscription, self._table, submit, clock, random, self.options, self._clear_all, self._moved
        )
        self.revision: RevisionController = self._resetting.revision
        """The revision of the cursor, by which reads and acknowledgements are checked."""
        self._acking = Acking(subscription, self._table, self.revision, submit, self._acknowledged)
        parts = (topic, subscription, self._table, self.revision, self._acking, self._hand)
        self._reading = Reading(*parts, clock, self.options, self._damaged, throttle)
        self._reading.ended = self._pump
        self._resetting.serve(self._acking, self._reading)
        whole = (topic, subscription, self._table, self._resetting, self._acking, self._reading)
        self._keys = Keys(self._table, subscription, None if tenure is None else tenure.member)
        self._looking = Looking(*whole, clock, self._keys, tenure)
        self._redelivery = Redelivery(self._table, clock, self._came_back)
        self._scheduling = Scheduling(self._table, self._reading, clock, times, self._pump)
        self._tenure = tenure
        """Its part in the ownership; None: no other member has the subscription."""
        if tenure is not None:
            self._reading.halted = True
            self._table.set_halted(True)
            tenure.serve(self, self._table, self._acking, self._keys)
        calls = (self._acknowledged, self.rewind, self.redeliver)
        self.claims = Claims(self._table, self._acking, self._reading, *calls)
        """Entries that events take out of the backlog, in place of consumers."""

    # -- consumers -------------------------------------------------------------------------------------

    @property
    def subscription(self) -> tuple[int, str]:
        """Id and name of the subscription."""
        return self._cursor.id, self._cursor.name

    @property
    def consumers(self) -> int:
        """Number of attached consumers."""
        return len(self._consumers)

    @property
    def rewinds(self) -> int:
        """Number of changes of the read position without an event, since the dispatcher exists."""
        return self._resetting.rewinds

    @property
    def type(self) -> SubscriptionType | None:
        return self._type

    @property
    def compacted(self) -> CompactedReading | None:
        """The compacted view that its consumers read; None: they read all messages."""
        return self._reading.compacted

    def add_consumer(
        self,
        endpoint: Endpoint,
        name: str,
        priority: int = 0,
        type: SubscriptionType = "shared",  # noqa: A002  # the word that users know
        ack_timeout_s: float | None = None,
        keys: KeyShared | None = None,
        session: int = 0,
        compacted: bool = False,
    ) -> int:
        """Attach a consumer, and return its id. It gets messages after it has given permits.

        Consumers with lower priority numbers are served first. If the call fails, the consumer is not
        attached. `session`: that of the replicated state, which splits the keys of a key_shared subscription.
        `compacted`: it reads the compacted view of the topic, and what is not compacted yet.

        Raises:
            Misuse: the subscription has consumers of another type, or that read another view, or an option is
                out of its range.
            Busy: the subscription is exclusive and has a consumer, or another one has some of the hashes.
            Closed: the dispatcher is closed.
        """
        self._require_open()
        require_options(priority, ack_timeout_s)
        if self._consumers and type != self._type:
            raise Misuse(
                f"subscription {self._cursor.name} has {self._type} consumers; a {type} consumer cannot join "
                "them"
            )
        if self._consumers and type == "exclusive":
            raise Busy(f"subscription {self._cursor.name} is exclusive and has a consumer; close it first")
        self._choose_view(compacted, type)
        waits = self._scheduling.waits
        if type == "key_shared":
            keys = keys or KeyShared()
            keys.require_sound()
            keys.require_fits(self._cursor.name, self._consumers.values())
            self._keys.begin(keys, self.options.ahead_entries)
        else:
            self._table.single = type != "shared"
        if waits and self._table.single:
            self._rewind()  # in order, so all is due
        self._type = type
        before = self._table.active
        id_ = self._table.add(priority)
        try:
            ack_timeout_ns = 0 if ack_timeout_s is None else max(1, int(ack_timeout_s * 1e9))
            self._enrol(Attached(id_, endpoint, name, priority, ack_timeout_ns, keys, session), before)
        except BaseException:
            if self._consumers.get(id_) is None:
                self._table.remove(id_)
            self.remove_consumer(id_)
            raise
        return id_

    def _choose_view(self, compacted: bool, type: SubscriptionType) -> None:  # noqa: A002
        """Read the topic or its compacted view, as the first consumer wants."""
        there = self._reading.compacted is not None
        require_view(self._cursor.name, type, compacted, there if self._consumers else compacted)
        if not self._consumers and there:
            self._reading.renew()
        if compacted != there:
            reading = self._begin_compacted() if compacted and self._begin_compacted else self._topic
            self._reading.read_from(reading)
            self._rewind()

    def _enrol(self, consumer: Attached, before: int) -> None:
        self._consumers[consumer.id] = consumer
        self._redelivery.watch(consumer)
        if not self._table.single:
            consumer.is_active = True
            self._keys.follow(self._consumers, self._pump)
        else:
            self._choose_active(before, consumer)
        self._looking.progress()

    def remove_consumer(self, consumer: int, counted: bool = True) -> None:
        """Detach a consumer; its messages are redelivered, and count as such if `counted`."""
        gone = self._consumers.pop(consumer, None)
        if gone is None:
            return
        self._redelivery.unwatch(consumer)
        self._table.remove(consumer, counted)
        self._keys.follow(self._consumers, self._pump)
        if self._reading.halted and self._tenure is not None:
            self._tenure.give_back(everything=not self._consumers)
        if not self._consumers:
            self._rewind()  # to the position at which a new dispatcher begins
            if self._tenure is not None:
                self._tenure.part()
        elif self._table.single and gone.is_active:
            self._choose_active(consumer, None)
        self._looking.progress()
        self._pump()

    def flow(self, consumer: int, permits: int) -> None:
        """Add permits: the consumer accepts that many more messages."""
        if consumer in self._consumers and permits > 0:
            self._table.flow(consumer, permits)
            self._pump()

    def grant(self, consumer: int, permits: int) -> None:
        """Replace the permits, for a consumer that has dropped its messages."""
        if consumer in self._consumers:
            self._table.grant(consumer, permits)
            self._pump()

    def pause(self, consumer: int) -> None:
        """Deliver nothing to a consumer until `resume`; its permits stay."""
        if consumer in self._consumers:
            self._table.pause(consumer, True)

    def resume(self, consumer: int) -> None:
        """Undo `pause`."""
        if consumer in self._consumers:
            self._table.pause(consumer, False)
            self._pump()

    def limit(self, unacked_max: int, held_max: int, pace: Pace | None) -> None:
        """Set limits: unacknowledged messages of a consumer and of all together (0: none), and rates."""
        self._table.unacked_max, self._acking.held_max = unacked_max, held_max
        self._acking.share()
        self._reading.pace = pace
        self._pump()

    def consumers_changed(self) -> None:
        """Follow consumers of a key_shared subscription that joined or left anywhere, or were full."""
        self._keys.follow(self._consumers, self._pump)

    def wake(self) -> None:
        """Read again: more entries of the topic are visible."""
        self._pump()

    def close(self, reason: Exception) -> None:
        """Stop serving. Consumers and callers that wait get the reason."""
        if self._closed is not None:
            return
        self._acking.flush()
        self._closed = reason
        self._reading.stop()
        self._redelivery.stop()
        self._scheduling.stop()
        self._resetting.stop(reason)
        self._keys.stop()
        if self._tenure is not None:
            self._tenure.close()
        consumers, self._consumers = self._consumers, {}
        for id_ in consumers:
            self._table.remove(id_)
        self._keys.split(self._consumers)
        for each in consumers.values():
            each.endpoint.closed(reason)

    def _choose_active(self, before: int, joined: Attached | None) -> None:
        """Follow a change of the active consumer of an exclusive or failover subscription.

        The active one has the best priority, and of several the one that joined first. Messages of the old
        one are redelivered.
        """
        if self._reading.halted:  # another member serves its own
            if joined is not None:
                joined.endpoint.active(False)
            return
        active = self._table.active
        old = self._consumers.get(before)
        if active != before:
            if before:
                self._rewind()
            if old is not None:
                old.is_active = False
                old.endpoint.active(False)
                self._clear(old)
            chosen = self._consumers[active]
            chosen.is_active = True
            chosen.endpoint.active(True)
        elif joined is not None:
            joined.endpoint.active(False)

    # -- redelivery ------------------------------------------------------------------------------------

    def nack(self, consumer: int, ordinals: Sequence[int], delay_s: float | None = None) -> None:
        """Redeliver entries after a delay; None: a delay that grows each time.

        Exclusive and failover subscriptions keep the order: all unacknowledged entries are redelivered, from
        the first one on.
        """
        first_s, factor, most_s = self.options.back_off(delay_s)
        if consumer not in self._consumers:
            return
        now_ns = self._clock.monotonic_ns()
        moved = self._table.nack(consumer, ordinals, int(first_s * 1e9), factor, int(most_s * 1e9), now_ns)
        if moved and first_s <= 0:  # else none of these entries is due yet
            self._came_back()
        self._redelivery.arm()

    def redeliver(self, consumer: int, ordinals: Sequence[int] | None = None) -> None:
        """Redeliver at once what a consumer holds: all of it, or these ordinals."""
        held = self._consumers.get(consumer)
        if held is None:
            return
        if self._table.single:
            if held.is_active:
                self.rewind()
            return
        if ordinals is None:
            self._table.redeliver_all(consumer)
            self._clear(held)
        else:
            self._table.redeliver(consumer, ordinals)
        self._pump()

    def rewind(self) -> None:
        """Read all unacknowledged entries again. Consumers drop messages that they have not taken."""
        self._rewind()
        for each in [*self._consumers.values()]:
            if each.is_active:
                self._clear(each)
        self._pump()

    def _rewind(self) -> None:
        if self._reading.halted and self._tenure is not None:
            self._tenure.give_back(everything=True)
            return

        def edit() -> None:
            self._table.rewind()
            self._reading.position = max(self._cursor.acks.acked_to, self._reading.first)

        self._resetting.rewind(edit)

    def _came_back(self) -> None:
        """Read entries that are due for redelivery."""
        if self._table.single:
            self.rewind()
        else:
            self._pump()

    # -- changes of position ---------------------------------------------------------------------------

    @property
    def reset_number(self) -> int:
        """Number of resets of the subscription."""
        return self.revision.reset_number

    @property
    def under_revision(self) -> bool:
        """Whether a reset is under way."""
        return self.revision.under_revision

    async def reset_ended(self) -> None:
        """Wait until no reset is under way."""
        await self.revision.closed()

    @property
    def read_position(self) -> int:
        """The ordinal that the next sequential read begins with."""
        return self._reading.position

    @property
    def acked_to(self) -> int:
        """The ordinal below which everything is acknowledged."""
        return self._cursor.acks.acked_to

    async def reset(self, target: int, timeout_s: float | None = None) -> Revision:
        """Reset the subscription to an ordinal, forward or back. Durable when it returns.

        `timeout_s` None: the option `reset_timeout_s`.

        Raises:
            CursorModifying: other resets came first, or took until the timeout. Nothing was changed.
            Timeout: the reset is under way, and may still happen; the reset number tells.
            Closed: the dispatcher is closed.
        """
        return await self._resetting.reset(
            target, self.options.reset_timeout_s if timeout_s is None else timeout_s
        )

    async def advance(
        self, *, to: int | None = None, skip: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Acknowledge everything below an ordinal, or `skip` entries of the backlog.

        Returns the new position.

        Raises:
            CursorModifying: a reset came first. Nothing was changed.
            Timeout: the advance is under way, and may still happen.
        """
        if (to is None) == (skip is None):
            raise Misuse("give either `to`, an ordinal, or `skip`, a number of entries")
        return await self._resetting.advance(to, skip, timeout_s)

    def moved(self, reset_number: int, acked_to: int) -> None:
        """Follow an event that has moved the cursor, of any member. Idempotent."""
        self._resetting.moved(reset_number, acked_to)

    def owned(self) -> None:
        """Follow a raised owner epoch: reads under way are dropped."""
        self._resetting.owned()

    # -- ownership -------------------------------------------------------------------------------------

    def take(self, elsewhere: Ranges, hashes: bytes = b"") -> None:
        """Begin to dispatch, from the first entry that no consumer holds and none has acknowledged.

        `hashes`: of a key_shared subscription, those of `elsewhere`.
        """

        def edit() -> None:
            self._table.set_halted(False)  # what was to be read again is read in its turn
            self._scheduling.began()
            if self._table.single:
                self._table.rewind()
            self._acking.elsewhere = elsewhere
            self._reading.position = max(self._cursor.acks.acked_to, self._reading.first)
            self._reading.halted = False
            self._scheduling.arm()
            if not self._consumers:
                self._keys.prepare(self.options.ahead_entries)
            if self._table.keyed and hashes:
                self._table.set_away(elsewhere, hashes)
                for first, end in elsewhere:  # acknowledged ones may be left among them
                    self._table.release_many(self._cursor.acks.acked_in(first, end))
            self._keys.split(self._consumers)

        self._resetting.take(edit)
        chosen = self._consumers.get(self._table.active)
        if self._table.single and chosen is not None and not chosen.is_active:
            chosen.is_active = True
            chosen.endpoint.active(True)
        self._looking.progress()
        self._reading.pump()

    def halt(self) -> None:
        """Stop to dispatch. Consumers of a shared subscription keep what they hold."""

        def edit() -> None:
            self._table.set_halted(True)  # what was to be read again, the next owner reads
            if self._table.single:
                self._table.rewind()
            self._reading.halted = True

        self._acking.flush()
        self._resetting.take(edit)
        if self._table.single:
            for each in [*self._consumers.values()]:
                if each.is_active:
                    each.is_active = False
                    each.endpoint.active(False)
                    self._clear(each)

    def returned(self, ranges: Ranges) -> None:
        """Deliver entries that consumers of another member gave back."""
        free = common(self._acking.elsewhere, ranges)
        self._acking.elsewhere = without(self._acking.elsewhere, free)
        if not self._reading.halted:
            self._table.come_back(free)
            self._pump()

    def acked(self, event: Ack) -> None:
        """Follow acknowledgements of any member: their entries are not held any more."""
        if event.reset_number != self.revision.reset_number:
            return
        self._table.release(0, event.cumulative)
        self._table.release_many(event.ranges)
        for ordinal, still_open in event.bits:
            self._table.shrink(ordinal, int.from_bytes(still_open, "little").bit_count())
        self._acknowledged()

    def _pump(self) -> None:
        """Read, if this member is the owner; else return what has come back."""
        if self._tenure is None or self._tenure.looked():
            self._reading.pump()

    def _moved(self) -> None:
        self._acking.share()
        self._looking.progress()
        self._pump()

    def _clear_all(self) -> None:
        for each in [*self._consumers.values()]:
            self._clear(each)

    def _clear(self, consumer: Attached) -> None:
        """Make a consumer drop messages that it has not taken: they are redelivered, or void."""
        if consumer.id in self._consumers:
            self._table.forgive(consumer.id)
            consumer.endpoint.cleared(self.revision.reset_number)

    # -- delivery --------------------------------------------------------------------------------------

    def _hand(self, entries: Entries, runs: Runs | None) -> None:
        """Register a run as pending and deliver it, in one step under one revision."""
        first, end = entries.first_ordinal, entries.first_ordinal + len(entries)
        handed = self._table.hand(
            entries,
            self._acking.covered(first, end),
            self._acking.open_in(first, end),
            runs,
            self._clock.monotonic_ns(),
            self.revision.reset_number,
            self._topic.name,
            self._scheduling.now_ms,
        )
        self._scheduling.arm()
        if handed:
            self._looking.progress()
            if self._tenure is not None:
                self._tenure.gave()
        for id_, batch in handed:
            consumer = self._consumers.get(id_)
            if consumer is not None:  # else a call of another endpoint has just removed it
                self._redelivery.given(consumer, batch)
                self._handed_messages += batch.permits
                self._handed_bytes += batch.size
                self._deliver(consumer, batch)

    def _deliver(self, consumer: Attached, batch: Batch) -> None:
        """Deliver a batch. A consumer whose endpoint fails is removed: it has taken nothing."""
        try:
            consumer.endpoint.deliver(batch)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"consumer {consumer.name} of {self._cursor.name} failed", "exception": error}
            )
            self.remove_consumer(consumer.id)

    def _damaged(self, error: Exception) -> None:
        """Report to active consumers that the next entry is damaged."""
        for each in [each for each in self._consumers.values() if each.is_active]:
            each.endpoint.failed(error)

    def _acknowledged(self) -> None:
        self._looking.progress()
        if self._table.unacked_max or self._table.held_max or self._table.keyed:
            self._acking.share()
            self._pump()

    def _require_open(self) -> None:
        if self._closed is not None:
            raise Closed(f"the dispatcher of subscription {self._cursor.name} is closed: {self._closed}")
