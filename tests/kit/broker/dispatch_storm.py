"""Run a random storm on a dispatcher, and keep an account of what must hold.

Reads are slow, and so is the order of events. Consumers join, leave, acknowledge, refuse and reset. A seed
repeats a run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast._core import Batch, Entries, TopicMessage
from holdfast.broker.events import Ack, Event, Reset
from holdfast.broker.state import SubscriptionType
from holdfast.errors import CursorModifying, HoldfastError, Outdated, Timeout
from tests.kit.broker.dispatch_world import GatedTopic, Inbox, Order, World
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import EPOCH_NS

ENTRIES = 60
BATCH = 3
KEYS = 5


class SlowTopic(GatedTopic):
    """A topic with slow reads; some entries have delivery times."""

    def __init__(self, chance: SeededRandomness, times: SeededRandomness) -> None:
        early = {each for each in range(ENTRIES) if times.happens(0.7)}
        begin_ms = EPOCH_NS // 1_000_000
        some = {each: begin_ms + times.integer(2500) for each in range(ENTRIES) if each not in early}
        super().__init__(ENTRIES // 2, BATCH, ledger_entries=7, keys=KEYS, times_ms=some)
        self.chance = chance

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        entries = await super().read(ordinal, count_max, size_max)
        await asyncio.sleep(self.chance.between(0, 0.02))
        return entries


class SlowOrder(Order):
    """An order that applies events some time after their submission, and makes them stable later."""

    def __init__(self, chance: SeededRandomness) -> None:
        super().__init__()
        self.chance = chance
        self.on_apply: Callable[[Event, Any], None]
        self._free_at = 0.0

    def submit(self, event: Event) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if isinstance(event, Reset) and self.chance.happens(0.05):
            return future  # lost with its sender: never applied, and the caller gets no result
        at = max(self._free_at, loop.time() + self.chance.between(0, 0.01))
        self._free_at = stable = at + self.chance.between(0, 0.01)
        loop.call_at(at, self._apply, event, future, stable)
        return future

    def _apply(self, event: Event, future: asyncio.Future[Any], stable: float) -> None:
        outcome: Any
        try:
            outcome = self.cursor.apply(event)
        except HoldfastError as error:
            outcome = error
        self.log.append(event)
        self.on_apply(event, outcome)
        asyncio.get_running_loop().call_at(stable, self._tell, event, outcome, future)

    def _tell(self, event: Event, outcome: Any, future: asyncio.Future[Any]) -> None:
        self.stable(event, outcome)
        if future.done():
            return
        if isinstance(outcome, HoldfastError):
            future.set_exception(outcome)
            future.exception()
        else:
            future.set_result(outcome)


class Watched(Inbox):
    """An inbox that checks every batch against the account."""

    def __init__(self, storm: Storm, type: SubscriptionType) -> None:  # noqa: A002
        super().__init__(storm, 0)
        self.storm = storm
        self.type = type
        self.granted = 0
        self.given = 0
        self.gone = False
        self.keeps = storm.chance.happens(0.5)
        """It keeps its permits when it is cleared, as a network client does."""
        self.paused = False
        self.last = -1
        """In exclusive and failover subscriptions, ordinals rise until it is cleared."""

    def deliver(self, batch: Batch) -> None:
        assert not self.gone, "a batch for a consumer that has gone"
        assert not self.paused, "a batch for a consumer that is paused"
        assert self.given < self.granted, f"I50: {self.given} given, {self.granted} granted"
        self.given += batch.permits
        assert self.given < self.granted + BATCH, f"I50: {self.given} given, {self.granted} granted"
        super().deliver(batch)
        entries = {message.ordinal: message.redelivery_count for message in batch}
        for ordinal, count in entries.items():
            self.storm.delivered(self, ordinal, count, batch.reset_number)

    def cleared(self, reset_number: int) -> None:
        self.storm.attic += self.messages
        if self.keeps:
            self.messages.clear()
            self.cleared_at.append(reset_number)
            self.given = min(self.given, self.granted)
        else:
            self.granted = self.given = 0
            super().cleared(reset_number)
        self.last = -1


class Storm(World):
    """A random run, and its account."""

    def __init__(self, seed: int) -> None:
        order = SlowOrder(SeededRandomness(seed, "order"))
        order.on_apply = self.applied
        super().__init__(
            topic=SlowTopic(SeededRandomness(seed, "topic"), SeededRandomness(seed, "times")),
            order=order,
            throttle=True,
            durable=seed % 2 == 0,
            nack_first_s=0.05,
            nack_most_s=0.2,
            turn_entries=2,
            read_entries=8,
            reset_timeout_s=1.0,
        )
        self.chance = SeededRandomness(seed, "storm")
        self.inboxes: list[Watched] = []
        self.type: SubscriptionType = "shared"
        self.reported = 0
        """The reset number of the last reset whose caller was told."""
        self.deliveries: Counter[tuple[int, int]] = Counter()
        """I52: how often each entry was delivered under each reset number."""
        self.target = 0
        """The target of the last reset."""
        self.receipted: set[int] = set()
        """Ordinals acknowledged with a receipt; only a reset may redeliver them."""
        self.attic: list[TopicMessage] = []
        """Messages that a consumer held earlier, and no longer holds."""
        self.calls: list[asyncio.Task[None]] = []

    async def before_hand_over(self, _: Entries) -> None:
        if self.chance.happens(0.3):
            await asyncio.sleep(self.chance.between(0, 0.01))

    # -- the account -----------------------------------------------------------------------------------

    def applied(self, event: Event, outcome: Any) -> None:
        if isinstance(event, Reset) and not isinstance(outcome, HoldfastError):
            self.receipted.clear()
            self.target = outcome.target
        if isinstance(event, Ack) and not isinstance(outcome, HoldfastError):
            number = self.cursor.reset_number
            for first, end in event.ranges:
                for ordinal in range(max(first, self.target), end):
                    assert self.deliveries[number, ordinal], (
                        f"I58: an old acknowledgement of {ordinal} counted"
                    )

    def delivered(self, inbox: Watched, ordinal: int, count: int, reset_number: int) -> None:
        assert reset_number >= self.reported, f"I55: {ordinal} of before reset {self.reported} came after it"
        assert reset_number <= self.cursor.reset_number, "memory was changed before the reset was durable"
        if reset_number == self.cursor.reset_number:
            assert ordinal not in self.receipted, f"{ordinal} has a receipt, and was redelivered"
        before = self.deliveries[reset_number, ordinal]
        assert count == before, f"I52: {ordinal} was delivered {before} times before, not {count}"
        self.deliveries[reset_number, ordinal] += 1
        if inbox.type in ("shared", "key_shared"):
            due_ms, now_ns = self.topic.times_ms.get(ordinal, 0), self.clock.now_ns()
            assert due_ms <= now_ns // 1_000_000, f"I271: {ordinal} came {due_ms - now_ns / 1e6} ms early"
        if inbox.type == "key_shared":
            self.in_order_of_its_key(inbox, ordinal)
        elif inbox.type != "shared":
            assert ordinal > inbox.last, f"{ordinal} came after {inbox.last}"
            inbox.last = ordinal

    def in_order_of_its_key(self, inbox: Watched, ordinal: int) -> None:
        """I260, I261: the open entries of its key are with the same consumer."""
        table, acking = self.dispatcher._table, self.dispatcher._acking
        for other in range(ordinal % KEYS, self.topic.visible, KEYS):
            holder = table.holder_of(other)
            assert holder in (0, inbox.id), f"I260: {ordinal} while {other} of its key is with {holder}"
            passed = other < ordinal and not holder and not table.is_scheduled(other)
            if passed and not acking.covered(other, other + 1):
                raise AssertionError(f"I261: {ordinal} came before {other}, which has the same key")

    # -- what happens to the dispatcher ----------------------------------------------------------------

    async def storm(self, steps: int) -> None:
        acts = [self.join_one, self.leave, self.flow, self.flow, self.flow, self.ack_some, self.ack_some]
        acts += [
            self.ack_some,
            self.ack_old,
            self.nack_some,
            self.redeliver_some,
            self.reset,
            self.advance,
            self.grow,
            self.pause_one,
        ]
        for _ in range(steps):
            acts[self.chance.integer(len(acts))]()
            self.dispatcher.check()
            if self.chance.happens(0.7):
                await asyncio.sleep(self.chance.between(0, 0.01))
        await self.finish()

    def any(self) -> Watched | None:
        return self.inboxes[self.chance.integer(len(self.inboxes))] if self.inboxes else None

    def join_one(self) -> None:
        if not self.inboxes:
            kinds: list[SubscriptionType] = ["shared", "key_shared", "failover", "exclusive", "key_shared"]
            self.type = kinds[self.chance.integer(len(kinds))]
        if len(self.inboxes) >= (1 if self.type == "exclusive" else 4):
            return
        inbox = Watched(self, self.type)
        timeout_s = 0.3 if self.chance.happens(0.2) else None
        name, priority = f"c{len(self.order.log)}", self.chance.integer(2)
        inbox.id = self.dispatcher.add_consumer(inbox, name, priority, self.type, timeout_s)
        self.inboxes.append(inbox)
        self.give(inbox, 10)

    def leave(self) -> None:
        inbox = self.any()
        if inbox is not None and self.chance.happens(0.4):
            self.inboxes.remove(inbox)
            inbox.gone = True
            self.attic += inbox.messages
            self.dispatcher.remove_consumer(inbox.id)

    def pause_one(self) -> None:
        inbox = self.any()
        if inbox is not None:
            inbox.paused = not inbox.paused
            (self.dispatcher.pause if inbox.paused else self.dispatcher.resume)(inbox.id)

    def give(self, inbox: Watched, permits: int) -> None:
        inbox.granted += permits
        self.dispatcher.flow(inbox.id, permits)

    def flow(self) -> None:
        inbox = self.any()
        if inbox is not None:
            self.give(inbox, 1 + self.chance.integer(20))

    def ack_some(self) -> None:
        inbox = self.any()
        if inbox is None or not inbox.messages:
            return
        if self.type in ("failover", "exclusive") and self.chance.happens(0.4):
            message = inbox.messages[self.chance.integer(len(inbox.messages))]
            self.dispatcher.ack_cumulative(message)
            return
        start = self.chance.integer(len(inbox.messages))
        some = inbox.messages[start : start + 1 + self.chance.integer(12)]
        receipt = self.dispatcher.ack(some, receipt=self.chance.happens(0.5))
        if receipt is not None:
            number = some[0].reset_number
            whole = {each.ordinal for each in some}
            self.calls.append(asyncio.ensure_future(self.receive(receipt, number, whole)))

    def ack_old(self) -> None:
        """Acknowledge messages of an earlier session, under its number or from a reconnected client."""
        if not self.attic:
            return
        start = self.chance.integer(len(self.attic))
        some = self.attic[start : start + 1 + self.chance.integer(5)]
        if self.chance.happens(0.5):
            number, before = self.dispatcher.revision.reset_number, self.dispatcher.stats().acks_outdated
            self.dispatcher.ack(some)
            old = sum(each.reset_number != number for each in some)
            assert self.dispatcher.stats().acks_outdated >= before + old, (
                "I58: an old acknowledgement counted"
            )
        else:
            ordinal = some[0].ordinal
            self.dispatcher.ack_ranges([(ordinal, ordinal + 1)], self.dispatcher.revision.reset_number)

    async def receive(self, receipt: asyncio.Future[None], number: int, ordinals: set[int]) -> None:
        try:
            await receipt
        except Outdated:
            return
        if number == self.cursor.reset_number:
            self.receipted |= {each for each in ordinals if self.cursor.acks.is_acked(each)}

    def nack_some(self) -> None:
        inbox = self.any()
        if inbox is not None and inbox.messages:
            message = inbox.messages[self.chance.integer(len(inbox.messages))]
            self.dispatcher.nack(inbox.id, [message.ordinal], 0 if self.chance.happens(0.3) else None)

    def redeliver_some(self) -> None:
        inbox = self.any()
        if inbox is not None and self.chance.happens(0.3):
            some = [each.ordinal for each in inbox.messages[-3:]] if self.chance.happens(0.6) else None
            self.dispatcher.redeliver(inbox.id, some)

    def reset(self) -> None:
        if self.chance.happens(0.5):
            call = asyncio.ensure_future(self.call_reset(self.chance.integer(self.topic.visible + 1)))
            self.calls.append(call)
            if self.chance.happens(0.2):
                asyncio.get_running_loop().call_later(0.01, call.cancel)
            if self.chance.happens(0.1):
                asyncio.get_running_loop().call_later(self.chance.between(0, 0.02), self.vanish)

    async def call_reset(self, target: int) -> None:
        try:
            revision = await self.dispatcher.reset(target, timeout_s=self.chance.between(0.001, 0.5))
        except (CursorModifying, Timeout):
            return
        self.reported = max(self.reported, revision.reset_number)

    def advance(self) -> None:
        if self.chance.happens(0.3):
            self.calls.append(asyncio.ensure_future(self.call_advance()))

    async def call_advance(self) -> None:
        try:
            await self.dispatcher.advance(skip=1 + self.chance.integer(4))
        except (CursorModifying, Timeout):
            return

    def grow(self) -> None:
        if self.topic.visible < ENTRIES:
            self.topic.grow(1 + self.chance.integer(4), BATCH)
            self.dispatcher.wake()

    # -- the end ---------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Let the remaining consumers acknowledge everything; that alone must end the backlog."""
        if self.calls:
            await asyncio.wait(self.calls)
        for task in self.calls:
            if not task.cancelled():
                task.result()
        await asyncio.sleep(3)  # time for the guard of a reset
        if not self.inboxes:
            self.join_one()
        for inbox in self.inboxes:
            inbox.paused = False
            self.dispatcher.resume(inbox.id)
        for _ in range(200):
            for inbox in self.inboxes:
                self.give(inbox, 50)
            await asyncio.sleep(0.05)
            for inbox in self.inboxes:
                self.dispatcher.ack(inbox.messages)
                inbox.messages.clear()
            if self.dispatcher.backlog == 0:
                break
        stats = self.dispatcher.stats()
        assert stats.backlog == 0, f"lost: {stats.diagnosis}"
        assert not stats.under_revision
        assert stats.pending_entries == stats.replay_entries == stats.delayed_entries == 0
        assert stats.scheduled_entries == 0


def storm(seed: int, steps: int = 200) -> tuple[int, ...]:
    """Run a storm and raise its faults; return counts that depend on the seed alone."""
    world = Storm(seed)
    try:
        world.run(lambda _: world.storm(steps))
    except BaseException as error:
        error.add_note(f"storm({seed}, {steps}) repeats it")
        raise
    stats = world.dispatcher.stats()
    return (world.loop.steps, world.loop.now_ns, stats.reads_dropped, sum(world.deliveries.values()))
