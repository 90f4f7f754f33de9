"""A world for dispatchers in virtual time: a topic, an order of events, and consumers.

The topic's reads stop at a gate, the order of events can be held, and the consumers record what they get.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from holdfast._core import Batch, Entries, TopicMessage, encode_messages, parse_run, seal_block
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.types import DispatchOptions
from holdfast.broker.dispatch.volatile import VolatileSubscription
from holdfast.broker.events import Advance, Event, Reset, Revised
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.state import SubscriptionType
from holdfast.errors import HoldfastError, NotFound
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import SimClock

T = TypeVar("T")
ENTRY_BLOCK = 2


class Gate:
    """A gate that stops callers while it is shut; one by one may pass."""

    def __init__(self) -> None:
        self.shut = False
        self.waiting: list[asyncio.Future[None]] = []

    async def pass_through(self) -> None:
        if self.shut:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            await future

    def let(self, index: int = 0) -> None:
        """Let one of the waiting callers pass."""
        self.waiting.pop(index).set_result(None)

    def open(self) -> None:
        self.shut = False
        while self.waiting:
            self.let()


class GatedTopic:
    """A topic in memory, in ledgers of `ledger_entries` entries; its reads stop at `gate`."""

    name = "persistent://public/default/world"

    def __init__(
        self,
        count: int = 0,
        batch: int = 1,
        ledger_entries: int = 1 << 30,
        keys: int = 0,
        times_ms: Mapping[int, int] | None = None,
    ) -> None:
        self.times_ms = times_ms or {}
        """Delivery times by ordinal."""
        self.first = 0
        self.visible = 0
        self.gate = Gate()
        self.reads: list[tuple[int, int]] = []
        self.failures: deque[Exception] = deque()
        self.damaged: set[int] = set()
        self._keys = keys
        """Entries have that many keys in turn; 0: none."""
        self._ledger_entries = ledger_entries
        self._blocks: list[bytes] = []
        self.grow(count, batch)

    def grow(self, count: int, batch: int = 1) -> None:
        """Add `count` entries, each of `batch` messages named after it."""
        for ordinal in range(len(self._blocks), len(self._blocks) + count):
            payloads = [b"%d.%d" % (ordinal, index) for index in range(batch)]
            key = f"key {ordinal % self._keys}" if self._keys else None
            entry = encode_messages(
                payloads,
                "producer",
                ordinal * batch,
                0,
                batch=batch,
                key=key,
                deliver_at_ms=self.deliver_at_ms(ordinal),
            )[0]
            block = seal_block(ENTRY_BLOCK, ordinal % self._ledger_entries, 0, entry)
            self._blocks.append(block + bytes(-len(block) % 8))
        self.visible = len(self._blocks)

    def deliver_at_ms(self, ordinal: int) -> int:
        """Return the delivery time of a new entry; 0: none."""
        return self.times_ms.get(ordinal, 0)

    def note_damage(self, ordinal: int) -> None:
        self.damaged.add(ordinal)

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        self.reads.append((ordinal, count_max))
        await self.gate.pass_through()
        if self.failures:
            raise self.failures.popleft()
        if not self.first <= ordinal < self.visible:
            raise NotFound(f"nothing at {ordinal}")
        ledger, entry = divmod(ordinal, self._ledger_entries)
        end = min(ordinal + count_max, self.visible, (ledger + 1) * self._ledger_entries)
        data = b"".join(self._blocks[ordinal:end])
        return parse_run(ledger + 1, ledger * self._ledger_entries, entry, b"", data)


class Order:
    """The order of a single broker: submitted, applied, stable. Each step can be held."""

    def __init__(self) -> None:
        self.cursor: VolatileSubscription
        self.hold_apply = False
        self.hold_stable = False
        self.log: list[Event] = []
        self.notify: Callable[[int, int], None] | None = None
        """Called with a move before the caller gets its result, as a durable subscription's dispatcher is."""
        self._submitted: deque[tuple[Event, asyncio.Future[Any]]] = deque()
        self._applied: deque[tuple[Event, Any, asyncio.Future[Any]]] = deque()
        self._scheduled = False

    def submit(self, event: Event) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._submitted.append((event, future))
        self._schedule()
        return future

    def release(self) -> None:
        """Hold no step any longer."""
        self.hold_apply = self.hold_stable = False
        self._schedule()

    def lose(self) -> None:
        """Lose submitted events that are not applied; their callers get no result."""
        self._submitted.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        while self._submitted and not self.hold_apply:
            event, future = self._submitted.popleft()
            self.log.append(event)
            try:
                self._applied.append((event, self.cursor.apply(event), future))
            except HoldfastError as error:
                self._applied.append((event, error, future))
        while self._applied and not self.hold_stable:
            event, outcome, future = self._applied.popleft()
            self.stable(event, outcome)
            if future.done():
                continue
            if isinstance(outcome, HoldfastError):
                future.set_exception(outcome)
                future.exception()
            else:
                future.set_result(outcome)

    def stable(self, event: Event, outcome: Any) -> None:
        """Notify the dispatcher of a move, as the broker does."""
        if self.notify is not None and isinstance(event, Reset | Advance) and isinstance(outcome, Revised):
            self.notify(outcome.reset_number, outcome.target)


class Inbox:
    """A consumer's endpoint that records what it gets."""

    def __init__(self, world: World, size: int) -> None:
        self._world = world
        self.size = size
        """Permits that it gives at first, and again after it was cleared."""
        self.id = 0
        self.batches: list[Batch] = []
        self.messages: list[TopicMessage] = []
        self.cleared_at: list[int] = []
        self.active_told: list[bool] = []
        self.failures: list[Exception] = []
        self.end: Exception | None = None

    def deliver(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.messages += batch

    def cleared(self, reset_number: int) -> None:
        self.messages.clear()
        self.cleared_at.append(reset_number)
        self._world.dispatcher.grant(self.id, self.size)

    def active(self, active: bool) -> None:
        self.active_told.append(active)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    def closed(self, reason: Exception) -> None:
        self.end = reason

    @property
    def ordinals(self) -> list[int]:
        return [message.ordinal for message in self.messages]

    @property
    def counts(self) -> list[int]:
        return [message.redelivery_count for message in self.messages]

    def message(self, ordinal: int) -> TopicMessage:
        return next(each for each in self.messages if each.ordinal == ordinal)


class World:
    """A topic of `entries` entries, a subscription on it, and its dispatcher."""

    def __init__(
        self,
        entries: int = 10,
        *,
        batch: int = 1,
        start: int = 0,
        throttle: bool = False,
        ledger_entries: int = 1 << 30,
        keys: int = 0,
        topic: GatedTopic | None = None,
        order: Order | None = None,
        durable: bool = False,
        **options: Any,
    ) -> None:
        self.loop = SimLoop(SeededRandomness(1))  # type: ignore[abstract]  # sockets it has none
        self.clock = SimClock(self.loop, 0)
        self.topic = topic or GatedTopic(entries, batch, ledger_entries, keys)
        self.order = order or Order()
        self.cursor = self.order.cursor = VolatileSubscription(self.topic, 7, "sub", start)
        self.throttle = Gate()
        self.dispatcher = Dispatcher(
            self.topic,
            self.cursor,
            self.order.submit,
            self.clock,
            SeededRandomness(2),
            DispatchOptions(**options),
            self.before_hand_over if throttle else None,
        )
        if durable:
            self.order.notify = self.dispatcher.moved

    async def before_hand_over(self, _: Entries) -> None:
        """Hold a read half-way: its position has moved, its messages have not been sent."""
        await self.throttle.pass_through()

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run a scenario to its end, then check the tables."""

        async def main() -> T:
            result = await scenario(self)
            self.dispatcher.check()
            self.dispatcher.close(Exception("the test is over"))
            return result

        try:
            answer: T = self.loop.run_until_complete(main())
            return answer
        finally:
            self.loop.close()

    async def settle(self, seconds: float = 0.001) -> None:
        """Let everything happen that can happen within this virtual time."""
        await asyncio.sleep(seconds)

    def join(
        self,
        permits: int = 1000,
        *,
        type: SubscriptionType = "shared",  # noqa: A002
        priority: int = 0,
        name: str = "",
        ack_timeout_s: float | None = None,
        again: bool = True,
        keys: KeyShared | None = None,
    ) -> Inbox:
        """Attach a consumer with these permits; `again`: it gives them again after a clear."""
        inbox = Inbox(self, permits if again else 0)
        name = name or f"consumer {self.dispatcher.consumers + 1}"
        inbox.id = self.dispatcher.add_consumer(inbox, name, priority, type, ack_timeout_s, keys)
        if permits:
            self.dispatcher.flow(inbox.id, permits)
        return inbox

    async def ack(self, inbox: Inbox, ordinals: Iterable[int]) -> None:
        """Acknowledge with a receipt."""
        wanted = set(ordinals)
        messages = [each for each in inbox.messages if each.ordinal in wanted]
        receipt = self.dispatcher.ack(messages, receipt=True)
        assert receipt is not None
        await receipt

    def vanish(self) -> None:
        """Lose the broker that carries out a reset, in the middle of it."""
        for task in list(self.dispatcher._resetting._tasks):
            task.cancel()


def run(scenario: Callable[[World], Coroutine[Any, Any, T]], **world: Any) -> T:
    """Run a scenario in a new world."""
    return World(**world).run(scenario)


async def outcome(awaitable: Awaitable[T]) -> T | BaseException:
    """Return the result, or the exception that was raised."""
    try:
        return await awaitable
    except Exception as error:
        return error
