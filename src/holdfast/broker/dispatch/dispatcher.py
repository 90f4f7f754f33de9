"""The dispatcher of a subscription: delivers entries to consumers.

Promises upward: a consumer gets messages only within its permits. It owns a message until it acknowledges it,
gives it back, or leaves. After a reset was reported, no message from before the reset arrives, and no earlier
acknowledgement has an effect.

Needs from below: a topic that reads, a cursor that events change, and a `submit` whose future is done when an
event is stable. Work per entry is done in the core (`_core.Dispatch`), not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast._core import Batch, Dispatch, Entries, TopicMessage
from holdfast.broker.dispatch.acking import Acking, Ranges, Receipt
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.looking import Looking
from holdfast.broker.dispatch.read_loops import Reading, Runs, Throttle
from holdfast.broker.dispatch.redelivery import Redelivery
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.revision import Revision, RevisionController
from holdfast.broker.dispatch.types import (
    ConsumerStats,
    Cursor,
    Diagnosis,
    DispatcherStats,
    DispatchOptions,
    Endpoint,
    Submit,
    TopicReader,
    require_options,
)
from holdfast.broker.state import SubscriptionType
from holdfast.broker.telemetry.traffic import Handed
from holdfast.errors import Busy, Closed, Corrupt, Misuse
from holdfast.system import Clock, Randomness


class Dispatcher:
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
        ...     def active(self, active): pass
        ...     def failed(self, error): pass
        ...     def closed(self, reason): pass
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
    ) -> None:
        self.options = options or DispatchOptions()
        self._topic = topic
        self._cursor = subscription
        self._clock = clock
        self._type: SubscriptionType | None = None
        self._consumers: dict[int, Attached] = {}
        self._closed: Exception | None = None
        self._table = Dispatch(self.options.turn_entries)
        self._table.unacked_max = self.options.unacked_max
        self._handed_messages = 0
        self._handed_bytes = 0
        self._resetting = Resetting(
            subscription, self._table, submit, clock, random, self.options, self._clear_all, self._moved
        )
        self.revision: RevisionController = self._resetting.revision
        """The revision of the cursor, by which reads and acknowledgements are checked."""
        self._acking = Acking(subscription, self._table, self.revision, submit, self._acknowledged)
        parts = (topic, subscription, self._table, self.revision, self._acking, self._hand)
        self._reading = Reading(*parts, clock, self.options, self._damaged, throttle)
        self._resetting.serve(self._acking, self._reading)
        whole = (topic, subscription, self._table, self._resetting, self._acking, self._reading)
        self._looking = Looking(*whole, clock)
        self._redelivery = Redelivery(self._table, clock, self._came_back)

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

    def add_consumer(
        self,
        endpoint: Endpoint,
        name: str,
        priority: int = 0,
        type: SubscriptionType = "shared",  # noqa: A002  # the word that users know
        ack_timeout_s: float | None = None,
    ) -> int:
        """Attach a consumer, and return its id. It gets messages after it has given permits.

        Consumers with lower priority numbers are served first. If the call fails, the consumer is not
        attached.

        Raises:
            Misuse: the subscription has consumers of another type, or an option is out of its range.
            Busy: the subscription is exclusive and has a consumer.
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
        self._type = type
        self._table.single = type != "shared"
        before = self._table.active
        id_ = self._table.add(priority)
        try:
            ack_timeout_ns = 0 if ack_timeout_s is None else max(1, int(ack_timeout_s * 1e9))
            self._enrol(Attached(id_, endpoint, name, priority, ack_timeout_ns), before)
        except BaseException:
            if self._consumers.get(id_) is None:
                self._table.remove(id_)
            self.remove_consumer(id_)
            raise
        return id_

    def _enrol(self, consumer: Attached, before: int) -> None:
        self._consumers[consumer.id] = consumer
        self._redelivery.watch(consumer)
        if self._type == "shared":
            consumer.is_active = True
        else:
            self._choose_active(before, consumer)
        self._looking.progress()

    def remove_consumer(self, consumer: int) -> None:
        """Detach a consumer. Messages that it held are redelivered, to others if there are any."""
        gone = self._consumers.pop(consumer, None)
        if gone is None:
            return
        self._redelivery.unwatch(consumer)
        self._table.remove(consumer)
        if not self._consumers:
            self._rewind()  # to the position at which a new dispatcher begins
        elif self._table.single and gone.is_active:
            self._choose_active(consumer, None)
        self._looking.progress()
        self._reading.pump()

    def flow(self, consumer: int, permits: int) -> None:
        """Add permits: the consumer accepts that many more messages."""
        if consumer in self._consumers and permits > 0:
            self._table.flow(consumer, permits)
            self._reading.pump()

    def grant(self, consumer: int, permits: int) -> None:
        """Replace the permits, for a consumer that has dropped its messages."""
        if consumer in self._consumers:
            self._table.grant(consumer, permits)
            self._reading.pump()

    def pause(self, consumer: int) -> None:
        """Deliver nothing to a consumer until `resume`; its permits stay."""
        if consumer in self._consumers:
            self._table.pause(consumer, True)

    def resume(self, consumer: int) -> None:
        """Undo `pause`."""
        if consumer in self._consumers:
            self._table.pause(consumer, False)
            self._reading.pump()

    def wake(self) -> None:
        """Read again: more entries of the topic are visible."""
        self._reading.pump()

    def close(self, reason: Exception) -> None:
        """Stop serving. Consumers and callers that wait get the reason."""
        if self._closed is not None:
            return
        self._acking.flush()
        self._closed = reason
        self._reading.stop()
        self._redelivery.stop()
        self._resetting.stop(reason)
        consumers, self._consumers = self._consumers, {}
        for each in consumers.values():
            self._table.remove(each.id)
            each.endpoint.closed(reason)

    def _choose_active(self, before: int, joined: Attached | None) -> None:
        """Follow a change of the active consumer of an exclusive or failover subscription.

        The active one has the best priority, and of several the one that joined first. Messages of the old
        one are redelivered.
        """
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

    # -- acknowledgements ------------------------------------------------------------------------------

    def ack(self, messages: Batch | Sequence[TopicMessage], receipt: bool = False) -> Receipt | None:
        """Acknowledge messages. All acknowledgements of a turn become one event.

        With `receipt` the result is a future that is done when they are durable. It raises `Outdated` if some
        messages were delivered before a reset: their acknowledgements have no effect.
        """
        return self._acking.messages(messages, receipt)

    def ack_ranges(self, ranges: Ranges, reset_number: int, receipt: bool = False) -> Receipt | None:
        """Acknowledge whole entries by ordinals: ranges `(first, end)`, sorted and disjoint."""
        return self._acking.ranges(ranges, reset_number, receipt)

    def ack_all_but(
        self, ordinal: int, still_open: int, reset_number: int, receipt: bool = False
    ) -> Receipt | None:
        """Acknowledge a batch except those in the mask; its size is not needed."""
        return self._acking.all_but([(ordinal, still_open)], reset_number, receipt)

    def ack_all_but_many(
        self, parts: Sequence[tuple[int, int]], reset_number: int, receipt: bool = False
    ) -> Receipt | None:
        """As `ack_all_but`, for many batches: each with its mask."""
        return self._acking.all_but(parts, reset_number, receipt)

    async def narrow(self, ordinal: int, still_open: int) -> None:
        """Deliver only the messages in the mask, after a reset into a batch."""
        await self._acking.narrow(ordinal, still_open)

    def ack_cumulative(self, message: TopicMessage, receipt: bool = False) -> Receipt | None:
        """Acknowledge a message and all before it.

        Raises:
            Misuse: the subscription is shared.
        """
        self.require_order()
        return self._acking.cumulative(
            message.ordinal,
            message.reset_number,
            receipt,
            message.batch_index,
            message.batch_size,
            exact=True,
        )

    def ack_up_to(self, ordinal: int, reset_number: int, receipt: bool = False) -> Receipt | None:
        """As `ack_cumulative`, by ordinal: the whole entry, and all before it.

        The number is that of a session: an entry that was not delivered since the last reset is not
        acknowledged.
        """
        self.require_order()
        return self._acking.cumulative(ordinal, reset_number, receipt)

    def require_order(self) -> None:
        """Check that acknowledgements may be cumulative.

        Raises:
            Misuse: the subscription is shared, so its messages have no order.
        """
        if self._type == "shared":
            raise Misuse(
                f"subscription {self._cursor.name} is shared, so its messages have no order; acknowledge "
                "them one by one, not cumulatively"
            )

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
        self._reading.pump()

    def rewind(self) -> None:
        """Read all unacknowledged entries again. Consumers drop messages that they have not taken."""
        self._rewind()
        for each in [*self._consumers.values()]:
            if each.is_active:
                self._clear(each)
        self._reading.pump()

    def _rewind(self) -> None:
        def edit() -> None:
            self._table.rewind()
            self._reading.position = max(self._cursor.acks.acked_to, self._topic.first)

        self._resetting.rewind(edit)

    def _came_back(self) -> None:
        """Read entries that are due for redelivery."""
        if self._table.single:
            self.rewind()
        else:
            self._reading.pump()

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

    def _moved(self) -> None:
        self._looking.progress()
        self._reading.pump()

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
        )
        if handed:
            self._looking.progress()
        for id_, batch in handed:
            consumer = self._consumers.get(id_)
            if consumer is not None:  # else a call of another endpoint has just removed it
                self._redelivery.given(consumer)
                messages, size = batch.permits, batch.size
                self._handed_messages += messages
                self._handed_bytes += size
                consumer.handed_messages += messages
                consumer.handed_bytes += size
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
        for each in [*self._consumers.values()]:
            if each.is_active:
                each.endpoint.failed(error)

    def _acknowledged(self) -> None:
        self._looking.progress()
        if self.options.unacked_max:
            self._reading.pump()

    def _require_open(self) -> None:
        if self._closed is not None:
            raise Closed(f"the dispatcher of subscription {self._cursor.name} is closed: {self._closed}")

    # -- stats -----------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """The exact number of entries that are visible and not acknowledged."""
        return self._looking.backlog

    @property
    def damage(self) -> tuple[int, Corrupt] | None:
        """The next entry and its error, if the last attempt found it damaged."""
        return self._reading.damage

    @property
    def partial_batches(self) -> int:
        """Number of batches of which some messages are acknowledged, or about to be."""
        return self._cursor.acks.partial_count + self._acking.parts

    @property
    def handed(self) -> Handed:
        """Messages and bytes delivered by this dispatcher, also to consumers that have left."""
        return Handed(self._handed_messages, self._handed_bytes)

    def handed_to(self) -> list[tuple[int, Handed]]:
        """Return messages and bytes delivered to each consumer, by its id."""
        consumers = self._consumers.values()
        return [(each.id, Handed(each.handed_messages, each.handed_bytes)) for each in consumers]

    def check(self) -> None:
        """Assert I50 to I53 in the tables, and that the position is within the topic."""
        self._table.check()
        assert self._reading.position <= max(self._topic.visible, self._cursor.acks.acked_to)

    def diagnose(self) -> Diagnosis:
        """Say why the subscription makes no progress."""
        return self._diagnose(self._looking.consumers(self._consumers))

    def _diagnose(self, consumers: tuple[ConsumerStats, ...]) -> Diagnosis:
        return self._looking.diagnose(consumers, self.options.unacked_max, self.options.stuck_after_s)

    def stats(self, consumers: tuple[ConsumerStats, ...] | None = None) -> DispatcherStats:
        """Return stats; `consumers` if the caller has collected theirs one by one."""
        consumers = self._looking.consumers(self._consumers) if consumers is None else consumers
        return self._looking.stats(self._type, consumers, self._diagnose(consumers))

    def consumer_ids(self) -> list[int]:
        """Return the ids of the consumers, in the order in which they are served."""
        return [row[0] for row in self._table.consumers()]

    def consumer_stats(self, consumer: int) -> ConsumerStats | None:
        """Return stats of one consumer, at a constant cost; None: it has left."""
        found = self._consumers.get(consumer)
        return None if found is None else self._looking.consumer(found)
