"""Rules of random work on a broker, compared with a model at every step.

The work has restarts and crashes in it. Nothing confirmed is lost. A receipted acknowledgement holds unless a
reset moves the cursor back. Order, permits, redelivery counts and backlogs are exact. Ids are stable, and
never shown before they are durable.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.broker.api.consumer import Start
from holdfast.ids import MessageId
from tests.kit.broker.harness import STICKY, Attached, Bench, Held, Where
from tests.kit.broker.model import Subscription, Type
from tests.kit.broker.worlds import RealWorld, SimWorld, World

SUBSCRIPTIONS: dict[Where, Type] = {
    ("a", "x"): "exclusive",
    ("a", "s"): "shared",
    ("b", "f"): "failover",
    ("b", "k"): "key_shared",
    STICKY: "key_shared",
}
CONSUMERS: list[Where] = [
    *[("a", "x"), ("a", "s"), ("b", "f"), ("b", "f"), ("a", "s")],
    *[("b", "k"), ("b", "k"), STICKY, STICKY],
]
"""The subscriptions of the consumers that connect at the start, and after a restart."""
ROLL_ENTRIES = 16
Sent = tuple[str, str, int, list[bytes], str | None, int]
"""Topic, producer, batch size, messages, key, sequence number of the first message."""
some = st.integers(0, 1000)
"""An index into a list of any length, which is taken modulo the length."""
wheres = st.sampled_from([*SUBSCRIPTIONS])
masks = st.one_of(st.just(0), st.integers(1, 511), st.integers(1, 511))
"""Which of some messages to acknowledge; 0: none."""
places = st.one_of(st.sampled_from(["earliest", "latest"]), st.tuples(st.sampled_from(["id", "time"]), some))


class BrokerMachine(RuleBasedStateMachine):
    """The rules. A subclass chooses the world."""

    bench: Bench

    def world(self, seed: int) -> World:
        raise NotImplementedError

    def new_bench(self, world: World) -> Bench:
        return Bench(world)

    @initialize(
        deduplicate=st.booleans(),
        seed=some,
        start=st.sampled_from(["earliest", "earliest", "latest"]),
        queues=st.lists(st.sampled_from([1, 3, 100]), min_size=3, max_size=3),
    )
    def begin(self, deduplicate: bool, seed: int, start: Start, queues: list[int]) -> None:
        self.bench = self.new_bench(self.world(seed))
        self.last: Sent | None = None

        async def begin() -> None:
            await self.bench.open()
            await self.bench.create("a", deduplicate)
            await self.bench.create("b", False)
            for topic, batch in (("a", 1), ("b", 1), ("a", 3), ("b", 3)):
                await self.bench.publish(*self.next_run(topic, batch, 4, None), post=False)
            for where, type in SUBSCRIPTIONS.items():  # noqa: A001  # the word that users know
                await self.bench.subscribe(where, type, start)
            await self.connect_all([*queues, *queues, *queues])

        self.run(begin())

    async def connect_all(self, queues: list[int]) -> None:
        """Connect the consumers; where time is virtual, the last one has an ack timeout."""
        for at, (queue, where) in enumerate(zip(queues, CONSUMERS, strict=False)):
            limited = at == 4 and isinstance(self.bench.world, SimWorld)
            await self.bench.join(where, queue, ack_timeout_s=3.0 if limited else None)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            for each in self.bench.attached:
                each.inbox.blind()
            self.bench.world.close(self.bench.broker)

    def run(self, work: Coroutine[Any, Any, None] | None) -> None:
        async def whole() -> None:
            if work is not None:
                await work
            await self.bench.settle()

        self.bench.world.run(whole())

    # -- choosing --------------------------------------------------------------------------------------

    def one(self, which: int, where: Where | None = None) -> Attached | None:
        there = [each for each in self.bench.attached if where in (None, each.where)]
        return there[which % len(there)] if there else None

    def in_hand(self, each: Attached, which: int, count: int = 1) -> list[Held]:
        """Return received messages of this subscription: mostly those that it holds now."""
        there = [held for held in self.bench.held if held.where == each.where][-12:]
        pending = self.bench.subscriptions[each.where].pending
        now = [held for held in there if pending.get(held.key.ordinal) == each.client.name]
        there = now if now and which % 4 else there
        start = which % len(there) if there else 0
        return there[start : start + count]

    def place(self, of: Subscription, to: str | tuple[str, int]) -> Start:
        known = [entry for entry in of.topic.entries[of.topic.first :] if entry.id is not None]
        if isinstance(to, str) or not known:
            return "latest" if to == "latest" else "earliest"
        entry = known[to[1] % len(known)]
        assert entry.id is not None
        return MessageId(*entry.id) if to[0] == "id" else entry.since_ns

    # -- publishing ------------------------------------------------------------------------------------

    def next_run(self, topic: str, batch: int, count: int, key: str | None) -> Sent:
        name = f"p{batch}"
        at = self.bench.sequences.get((topic, name), 0)
        return topic, name, batch, [self.bench.payload(count) for _ in range(count)], key, at

    async def connect(self, topic: str, batch: int) -> None:
        await self.bench.producer(topic, f"p{batch}", batch)

    batches = st.sampled_from([1, 1, 3])

    @rule(
        topic=st.sampled_from("ab"),
        batch=batches,
        count=st.integers(1, 9),
        key=st.sampled_from([None, *"klmno"]),
        post=st.sampled_from([False, False, True]),
    )
    def publish(self, topic: str, batch: int, count: int, key: str | None, post: bool) -> None:
        self.last = self.next_run(topic, batch, count, key)
        self.run(self.bench.publish(*self.last, post=post))

    @rule(topic=st.sampled_from("aab"), batch=batches, count=st.integers(1, 4), delay_ms=st.integers(1, 40))
    def publish_for_later(self, topic: str, batch: int, count: int, delay_ms: int) -> None:
        run = self.next_run(topic, batch, count, None)
        self.run(self.bench.publish(*run, post=False, delay_ms=delay_ms))

    @rule(key=st.sampled_from("kl"), ordering=st.sampled_from("pq"), count=st.integers(1, 3))
    def publish_with_an_ordering_key(self, key: str, ordering: str, count: int) -> None:
        async def publish() -> None:
            for _ in range(count):
                await self.bench.publish(*self.next_run("b", 1, 1, f"{key}|{ordering}"), post=False)

        self.run(publish())

    @precondition(lambda self: self.last is not None)
    @rule(more=st.integers(0, 2))
    def send_again(self, more: int) -> None:
        """Send again as a producer without an answer; with deduplication nothing is stored twice."""
        assert self.last is not None
        topic, name, batch, messages, key, at = self.last
        self.run(self.bench.flush())
        if batch == 1:
            messages = messages + [self.bench.payload(1) for _ in range(more)]
        self.run(self.bench.publish(topic, name, batch, messages, key, at, post=False))

    @rule()
    def flush(self) -> None:
        self.run(self.bench.flush())

    # -- consuming -------------------------------------------------------------------------------------

    @rule(
        where=wheres,
        queue=st.sampled_from([1, 2, 5, 100]),
        priority=st.sampled_from([0, 0, 1]),
        ack_timeout_s=st.sampled_from([None, None, 3.0]),
    )
    def join(self, where: Where, queue: int, priority: int, ack_timeout_s: float | None) -> None:
        if len(self.bench.attached) < 10:
            limit_s = ack_timeout_s if isinstance(self.bench.world, SimWorld) else None
            self.run(self.bench.join(where, queue, priority, limit_s))

    def anybody(self) -> bool:
        return bool(self.bench.attached)

    def anything(self) -> bool:
        return bool(self.bench.attached and self.bench.held)

    @precondition(anybody)
    @rule(which=some)
    def leave(self, which: int) -> None:
        each = self.one(which)
        assert each is not None
        self.run(self.bench.leave(each))

    @precondition(anybody)
    @rule()
    def take_all(self) -> None:
        async def take() -> None:
            for each in self.bench.attached:
                await self.bench.take(each, 100)

        self.run(take())

    @precondition(anybody)
    @rule(which=some, count=st.sampled_from([1, 2, 5]))
    def take(self, which: int, count: int) -> None:
        each = self.one(which)
        assert each is not None
        self.run(self.bench.take(each, count))

    @precondition(anybody)
    @rule(which=some, mask=masks, receipt=st.booleans())
    def work(self, which: int, mask: int, receipt: bool) -> None:
        self.run(self.take_and_ack(self.one(which), mask, receipt))

    async def take_and_ack(self, each: Attached | None, mask: int, receipt: bool) -> None:
        """Receive some messages, and acknowledge some of them."""
        if each is None or mask == 0:
            return
        before = len(self.bench.held)
        for _ in range(3):  # a small queue returns few at a time
            await self.bench.take(each, 4)
            await self.bench.settle()
        taken = self.bench.held[before:]
        chosen = [held for at, held in enumerate(taken) if mask >> at & 1]
        if chosen:
            await self.bench.ack(each, chosen, receipt)

    @precondition(anything)
    @rule(which=some, what=some, count=st.integers(1, 4), receipt=st.booleans())
    def ack(self, which: int, what: int, count: int, receipt: bool) -> None:
        each = self.one(which)
        assert each is not None
        chosen = self.in_hand(each, what, count)
        if chosen:
            self.run(self.bench.ack(each, chosen, receipt))

    @precondition(anybody)
    @rule(which=some, what=some, receipt=st.booleans())
    def ack_cumulative(self, which: int, what: int, receipt: bool) -> None:
        each = self.one(which)
        assert each is not None
        self.run(self.bench.take(each, 3))
        chosen = self.in_hand(each, what)
        if chosen and self.bench.subscriptions[each.where].is_ordered:
            self.run(self.bench.ack_cumulative(each, chosen[0], receipt))

    @precondition(lambda self: bool(self.bench.held))
    @rule(what=some, receipt=st.booleans())
    def ack_as_session(self, what: int, receipt: bool) -> None:
        """Acknowledge any message that was ever received, with the current reset number."""
        self.run(self.bench.ack_as_session(self.bench.held[what % len(self.bench.held)], receipt))

    @precondition(anybody)
    @rule(which=some, what=some, delay_s=st.sampled_from([0.0, 0.003]))
    def nack(self, which: int, what: int, delay_s: float) -> None:
        each = self.one(which)
        assert each is not None

        async def nack() -> None:
            await self.bench.take(each, 2)
            for held in self.in_hand(each, what):
                self.bench.nack(each, held, delay_s)

        self.run(nack())

    @precondition(anybody)
    @rule(which=some)
    def redeliver(self, which: int) -> None:
        each = self.one(which)
        assert each is not None

        async def redeliver() -> None:
            self.bench.redeliver(each)

        self.run(redeliver())

    @rule(topic=st.sampled_from("ab"), start=places, then=st.one_of(st.none(), places))
    def read(self, topic: str, start: str | tuple[str, int], then: str | tuple[str, int] | None) -> None:
        self.run(self.bench.flush())
        of = Subscription(self.bench.topics[topic], "exclusive")
        second = None if then is None else self.place(of, then)
        self.run(self.bench.read(topic, self.place(of, start), second))

    # -- going elsewhere -------------------------------------------------------------------------------

    @rule(where=wheres, to=places, which=some, mask=masks, seek=st.booleans(), late=st.booleans())
    def reset(
        self, where: Where, to: str | tuple[str, int], which: int, mask: int, seek: bool, late: bool
    ) -> None:
        """Reset after some work; with `late`, acknowledge then what was delivered before."""
        self.run(self.bench.flush())
        each = self.one(which, where)
        self.run(self.take_and_ack(each, mask, receipt=which % 3 == 0))
        before = self.in_hand(each, which) if each is not None and late else []
        of = self.bench.subscriptions[where]
        self.run(self.bench.reset(where, self.place(of, to), each if seek else None))
        if before and each in self.bench.attached:
            if not of.is_ordered:
                self.run(self.bench.ack(each, before, receipt=which % 2 == 0))
            else:
                self.run(self.bench.ack_cumulative(each, before[0], receipt=which % 2 == 0))

    async def forward(self, where: Where, how: str, count: int) -> None:
        of, admin = self.bench.subscriptions[where], self.bench.admin
        if how == "skip":
            await self.bench.advance(where, of.skipped(count), admin.skip(*where, count))
        elif how == "clear":
            await self.bench.advance(where, of.keys_below(of.topic.end), admin.clear(*where))
        elif isinstance(self.bench.world, SimWorld):
            target = of.topic.at_time(self.bench.world.clock.now_ns() - int(5e9))
            await self.bench.advance(where, of.keys_below(target), admin.expire(*where, 5.0))
        else:
            await self.bench.advance(where, set(), admin.expire(*where, 1e6))

    @rule(where=wheres, how=st.sampled_from(["skip", "skip", "clear", "expire"]), count=st.integers(1, 5))
    def advance(self, where: Where, how: str, count: int) -> None:
        self.run(self.bench.flush())
        self.run(self.forward(where, how, count))

    @rule()
    def wait(self) -> None:
        """Wait until some messages are old."""
        if isinstance(self.bench.world, SimWorld):
            self.run(self.bench.world.clock.sleep(10.0))

    # -- ledgers, restarts, crashes --------------------------------------------------------------------

    @rule(topic=st.sampled_from("ab"), how=st.sampled_from(["roll", "trim", "trim", "snapshot"]))
    def house(self, topic: str, how: str) -> None:
        if how == "snapshot":
            self.run(self.bench.admin.snapshot())
        else:
            self.run(self.bench.roll(topic) if how == "roll" else self.bench.trim(topic))

    @rule(queue=st.sampled_from([0, 2, 100]), which=some, mask=masks, late=st.booleans())
    def restart(self, queue: int, which: int, mask: int, late: bool) -> None:
        self.run(self.take_and_ack(self.one(which), mask, receipt=which % 3 == 0))
        self.run(self.bench.restart())
        self.come_back(queue, which if late else None)

    @rule(queue=st.sampled_from([0, 2, 100]), which=some, mask=masks, power=st.booleans(), late=st.booleans())
    def crash(self, queue: int, which: int, mask: int, power: bool, late: bool) -> None:
        self.run(self.take_and_ack(self.one(which), mask, receipt=which % 3 == 0))
        self.bench.crash(power)
        self.come_back(queue, which if late else None)

    def come_back(self, queue: int, late: int | None = None) -> None:
        """Connect the clients again; with `late`, one first acknowledges messages of an earlier life."""
        if late is not None and self.bench.held:
            self.run(self.bench.ack_as_session(self.bench.held[late % len(self.bench.held)], late % 2 == 0))
        self.run(self.connect_all([queue] * len(CONSUMERS)) if queue else None)

    @rule(
        how=st.sampled_from(["publish", "ack", "reset", "skip", "clear", "snapshot", "roll"]),
        where=wheres,
        which=some,
        to=places,
        turns=st.integers(0, 40),
        power=st.booleans(),
    )
    def crash_in_the_middle(
        self, how: str, where: Where, which: int, to: str | tuple[str, int], turns: int, power: bool
    ) -> None:
        bench, each = self.bench, self.one(which, where)
        of = bench.subscriptions[where]
        chosen = self.in_hand(each, which, 3) if each is not None else []
        self.run(bench.flush())
        if how == "publish":
            if which % 3:
                self.run(self.connect(where[0], 1 + which % 2 * 2))  # else the crash mostly hits the connect
            self.last = self.next_run(where[0], 1 + which % 2 * 2, 1 + which % 6, None)
            work = bench.publish(*self.last, post=which % 5 == 0)
        elif how == "ack" and each is not None and chosen:
            work = bench.ack(each, chosen, receipt=which % 2 == 0)
        elif how == "reset":
            work = bench.reset(where, self.place(of, to), each)
        elif how in ("skip", "clear"):
            work = self.forward(where, how, 1 + which % 4)
        else:
            work = bench.admin.snapshot() if how == "snapshot" else bench.roll(where[0])
        bench.world.begin(work, turns)
        bench.check()
        bench.check_ends()
        bench.crash(power)
        self.come_back(which % 3 * 50)


class RealMachine(BrokerMachine):
    """A machine with real files, the writer's thread, and real time."""

    def world(self, seed: int) -> World:
        return RealWorld(roll_entries=ROLL_ENTRIES)


class SimMachine(BrokerMachine):
    """A machine in virtual time, whose disk loses and tears what was not synced."""

    def world(self, seed: int) -> World:
        return SimWorld(seed, roll_entries=ROLL_ENTRIES)
