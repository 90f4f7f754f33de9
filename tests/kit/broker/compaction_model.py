"""A model of a compacted topic: its messages, and those that each reader must get.

The broker runs on a simulated disk, which loses power in the middle of a compaction. A reader gets the newest
message of each key below the horizon of its view, without deleted keys. Then it gets every message from the
horizon on. A dead compaction changes nothing, and is carried out later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.broker.api.consumer import Reader
from holdfast.broker.broker import Broker
from holdfast.broker.compaction import worker
from holdfast.broker.events import CompactionSettle
from holdfast.broker.topic import Topic
from holdfast.errors import Timeout
from tests.kit.broker.worlds import SimWorld
from tests.kit.ledger.entry_bytes import Fields, batch_payload, entry

TOPIC = "prices"
OPTIONS: dict[str, Any] = {"roll_entries": 6, "housekeeping_s": 0.5, "compaction_memory_bytes": 1}


class Message(NamedTuple):
    """A message that was confirmed."""

    ordinal: int
    part: int
    """Its index in a batch."""
    key: str | None
    data: bytes


def entry_of(number: int, messages: list[tuple[str | None, bytes]], batched: bool) -> bytes:
    """Encode one message, or a batch whose messages have keys of their own."""
    head: Fields = [(1, b"p"), (2, number), (3, 1)]
    if not batched:
        ((key, data),) = messages
        return entry(head + ([] if key is None else [(6, key.encode())]), data)
    parts: list[tuple[Fields, bytes]] = [
        ([] if key is None else [(2, key.encode())], data) for key, data in messages
    ]
    return entry([*head, (11, len(messages))], batch_payload(parts))


@dataclass
class Held:
    """A reader that was opened, and has read a part."""

    reader: Reader
    horizon: int
    """Of the view in which it began."""
    got: list[tuple[int, bytes]] = field(default_factory=list)


class CompactionMachine(RuleBasedStateMachine):
    """A broker with one topic, beside the model."""

    @initialize(memory=st.sampled_from([1, 1 << 20]), append=st.sampled_from([1, 3, 1000]))
    def begin(self, memory: int, append: int) -> None:
        self.append_entries = worker.APPEND_ENTRIES
        worker.APPEND_ENTRIES = append
        self.world = SimWorld(**OPTIONS | {"compaction_memory_bytes": memory})
        self.broker: Broker = self.world.run(self.world.open())
        self.messages: list[Message] = []
        self.held: list[Held] = []
        self.newest_seen: dict[str, bytes] = {}
        """The last value that the consumer of the subscription has received, by key."""
        self.numbers = 0

        async def create() -> None:
            await self.broker.admin.create_topic(TOPIC, retention_bytes=0)
            for name in ("plain", "compacted"):
                await self.broker.admin.create_subscription(TOPIC, name, start="earliest")

        self.world.run(create())

    def teardown(self) -> None:
        worker.APPEND_ENTRIES = self.append_entries
        self.world.close(self.broker)

    # -- the model -------------------------------------------------------------------------------------

    @property
    def topic(self) -> Topic:
        (found,) = self.broker.topics.values()
        return found

    @property
    def horizon(self) -> int:
        """Of the newest view; −1: without one."""
        compaction = self.topic.state.compaction
        return -1 if compaction is None or compaction.view is None else compaction.view.horizon

    def expected(self, horizon: int) -> list[tuple[int, bytes]]:
        """Return what a reader gets that began in the view with this horizon."""
        first = self.topic.first if horizon < 0 else 0
        newest = {each.key: each for each in self.messages if each.ordinal < horizon}
        kept = {each for each in newest.values() if each.key is not None and each.data}
        return [
            (each.ordinal, each.data)
            for each in self.messages
            if each.ordinal >= max(horizon, first) or each in kept
        ]

    def forget_trimmed(self) -> None:
        """Forget messages that the topic has trimmed; a view would keep the newest."""
        if self.horizon < 0:
            self.messages = [each for each in self.messages if each.ordinal >= self.topic.first]

    async def read(self, held: Held, count: int | None = None) -> None:
        """Read some messages, or all that there are."""
        while (count is None or len(held.got) < count) and await held.reader.has_more():
            message = await held.reader.read(timeout=60)
            held.got.append((message.ordinal, message.data))

    async def open_reader(self) -> Held:
        reader = self.broker.reader(TOPIC, compacted=True, receiver_queue=2)
        await reader.open()
        return Held(reader, self.horizon)

    # -- rules -----------------------------------------------------------------------------------------

    @rule(
        batch=st.sampled_from([1, 1, 3]),
        keys=st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=7),
        empty=st.integers(0, 9),
    )
    def publish(self, batch: int, keys: list[str | None], empty: int) -> None:
        """Publish a row of messages; one of them may delete its key."""

        async def work() -> None:
            for at in range(0, len(keys), batch):
                self.numbers += 1
                given = [
                    (key, b"" if at + n == empty else b"%d.%d" % (self.numbers, n))
                    for n, key in enumerate(keys[at : at + batch])
                ]
                end = self.topic.visible
                async with self.broker.producer(TOPIC):
                    of = next(iter(self.topic.producers.values()))
                    entry = [(self.numbers, 1, entry_of(self.numbers, given, batched=batch > 1))]
                    await self.broker.publish_entries(self.topic, of.session, of.epoch, of.name, entry)
                self.messages += [Message(end, n, *each) for n, each in enumerate(given)]

        self.world.run(work())

    @precondition(lambda self: self.messages)
    @rule()
    def compact(self) -> None:
        async def work() -> None:
            end = self.topic.visible
            await self.broker.admin.compact(TOPIC, wait=True)
            found = self.broker.admin.compaction(TOPIC)
            assert found.state == "done", found.error
            assert self.horizon == end, f"the view ends at {self.horizon}, not at {end}"
            assert found.kept == sum(each[0] < end for each in self.expected(end))

        self.world.run(work())
        self.keep_promised()

    @precondition(lambda self: self.messages)
    @rule(turns=st.integers(1, 60), power=st.booleans())
    def die_while_compacting(self, turns: int, power: bool) -> None:
        """The view is the former or the new one; a confirmed request is carried out."""
        before, end = self.horizon, self.topic.visible
        self.held.clear()

        async def work() -> None:
            await self.broker.admin.compact(TOPIC)
            confirmed.append(True)
            await asyncio.sleep(60)

        confirmed: list[bool] = []
        self.world.begin(work(), turns)
        self.world.crash(self.broker, power)
        self.broker = self.world.run(self.world.open())
        assert self.horizon in (before, end)
        self.check()

        async def later() -> None:
            await self.broker.compactions.ended(self.topic)

        requested = self.topic.state.compaction is not None and self.topic.state.compaction.requested
        assert not confirmed or requested or self.horizon == end, "a confirmed request was forgotten"
        self.world.run(later())
        self.check()

    @rule()
    def check(self) -> None:
        """A reader that begins now gets exactly what the model says."""

        async def work() -> None:
            held = await self.open_reader()
            await self.read(held)
            await held.reader.close()
            wanted = self.expected(held.horizon)
            assert held.got == wanted, f"horizon {held.horizon}: {held.got}, not {wanted}"

        self.world.run(work())
        self.broker.machine.state.check()

    @precondition(lambda self: len(self.held) < 3)
    @rule(count=st.integers(0, 3))
    def hold(self, count: int) -> None:
        async def work() -> None:
            held = await self.open_reader()
            await self.read(held, count)
            self.held.append(held)

        self.world.run(work())

    def keep_promised(self) -> None:
        """Forget readers that are promised nothing any more: two views have replaced theirs."""
        compaction = self.topic.state.compaction
        kept = () if compaction is None else compaction.kept
        self.held = [each for each in self.held if any(view.horizon == each.horizon for view in kept)]

    @precondition(lambda self: self.held)
    @rule()
    def go_on(self) -> None:
        """A reader continues in the view in which it began, also after another one."""

        async def work() -> None:
            held = self.held.pop(0)
            await self.read(held)
            await held.reader.close()
            assert held.got == self.expected(held.horizon), f"began with horizon {held.horizon}"

        self.world.run(work())

    @precondition(lambda self: self.horizon >= 0)
    @rule(count=st.integers(0, 4), keys=st.lists(st.sampled_from("abcd"), min_size=3, max_size=7))
    def read_across(self, count: int, keys: list[str]) -> None:
        """A reader reads a part, keys are deleted and compacted, and it reads on."""
        self.hold(count)
        self.held.insert(0, self.held.pop())
        self.publish(1, [*keys], 0)
        self.publish(1, [*keys], 1)
        self.compact()
        self.go_on()

    @precondition(lambda self: self.horizon >= 0)
    @rule()
    def settle(self) -> None:
        """The view before is no longer kept: the promise to its readers ends."""

        async def work() -> None:
            assert self.topic.state.compaction is not None
            await self.broker.engine.submit(
                CompactionSettle(self.topic.id, self.topic.state.compaction.views)
            )

        self.world.run(work())
        self.keep_promised()

    @rule()
    def drain(self) -> None:
        """Another subscription has acknowledged everything: the topic may trim all but what is needed."""

        async def work() -> None:
            for name in ("plain", "compacted") if self.horizon < 0 else ("plain",):
                self.cleared |= name == "compacted"
                await self.broker.admin.clear(TOPIC, name)
            await self.broker.clock.sleep(1.0)

        self.world.run(work())
        self.forget_trimmed()
        if self.horizon < 0:
            self.held.clear()

    @precondition(lambda self: self.horizon >= 0)
    @rule()
    def consume(self) -> None:
        """A consumer gets each newest value at some time, and its backlog becomes empty."""

        async def work() -> None:
            consumer = self.broker.consumer(TOPIC, "compacted", compacted=True, receiver_queue=2)
            async with consumer:
                while True:
                    try:
                        message = await consumer.receive(timeout=0.2)
                    except Timeout:
                        break
                    if isinstance(message.key, str):
                        self.newest_seen[message.key] = message.data
                    await consumer.ack(message, receipt=True)
                await asyncio.sleep(0.2)
            subscription = self.topic.subscriptions["compacted"]
            acks = subscription.acks
            left = (acks.acked_to, list(acks.ranges()), acks.bits_in(0, self.topic.visible))
            assert self.topic.backlog(subscription) == 0, (
                f"places without entries stay in the backlog: {left}"
            )

        self.world.run(work())
        newest = {each.key: each.data for each in self.messages if each.key is not None}
        for key, data in newest.items():
            assert not data or self.newest_seen.get(key or "") == data or self.cleared, key

    cleared = False
    """Whether the consumer's backlog was ever cleared: then it need not have seen anything."""

    @rule(compacting=st.booleans())
    def restart(self, compacting: bool) -> None:
        """Close the broker, perhaps at the beginning of a compaction, which is carried out later."""
        self.held.clear()
        requested, end = compacting and bool(self.messages), self.topic.visible

        async def close() -> None:
            if requested:
                await self.broker.admin.compact(TOPIC)
            await self.broker.close()

        self.world.run(close())
        self.broker = self.world.run(self.world.open())
        self.check()
        self.world.run(self.broker.compactions.ended(self.topic))
        assert not requested or self.horizon == end, "a request was forgotten"
        self.check()
