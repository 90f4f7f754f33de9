"""Let consumers of several brokers share subscriptions, and watch every delivery.

Each subscription has consumers on all members. At each delivery the world looks at the tables of all members
of the view. No entry is with two consumers, and no two members dispatch. In the end everything is
acknowledged.

Run as a program it prints the trace of one seed: `python -m tests.kit.broker.owners SEED`.
"""

from __future__ import annotations

import asyncio
import errno
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from holdfast._core import Batch, TopicMessage
from holdfast.broker.api.consumer import Consumer
from holdfast.broker.broker import Broker
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.ownership import Ownership
from holdfast.broker.effects import Effects
from holdfast.broker.events import OwnerChanged
from holdfast.broker.machine import Applied
from holdfast.broker.options import BrokerOptions
from holdfast.broker.ranges import merged, without
from holdfast.broker.state import SubscriptionType
from holdfast.errors import Busy, Closed, CursorModifying, Exists, HoldfastError, NoQuorum, Outdated, Timeout
from holdfast.group import Position
from tests.kit.broker import cluster
from tests.kit.broker.cluster import Replica, World
from tests.kit.group.checker import Broken
from tests.kit.sim import EVERYTHING, Sim, SimNode, Trouble, Weather, storm, strike
from tests.kit.sim.randomness import SeededRandomness

OPTIONS = BrokerOptions(
    roll_entries=40,
    snapshot_bytes=40_000,
    snapshot_s=2.0,
    housekeeping_s=0.5,
    reserve_bytes=4096,
    retention_bytes=-1,
    nack_first_s=0.05,
    ownership_turn_s=0.05,
)
SUBSCRIPTIONS: dict[str, SubscriptionType] = {
    "all": "shared",
    "line": "failover",
    "one": "exclusive",
    "keys": "key_shared",
}
"""Squalls with odd seeds have one of them only: they are shorter."""
TOPIC = "orders"
SQUALL = ("split", "crash", "crash", "pause", "slow", "one_way", "some_links", "disk_fault", "clock")
"""The faults of a squall, as likely as they are here."""
SOME = Trouble(split=2, heal=3, crash=2, pause=1)


class Owners(World):
    """The brokers' world, and what was delivered in it."""

    options = OPTIONS

    def __init__(self, sim: Sim, pause_s: float, few: bool = False, delays: bool = True) -> None:
        super().__init__(sim, pause_s)
        few_ = ("all",) if sim.seed % 4 == 1 else ("keys",)
        self.served = SUBSCRIPTIONS if not few else {each: SUBSCRIPTIONS[each] for each in few_}
        self.delivered = 0
        self.owners: dict[str, set[int]] = {name: set() for name in SUBSCRIPTIONS}
        """Nodes that have dispatched each subscription."""
        self.sure: dict[tuple[str, int], dict[int, Position]] = {}
        """By subscription and reset number: ordinals that were acknowledged with a receipt, and when."""
        self.settled: set[tuple[Ownership, int, int]] = set()
        """Decisions on owners that are stable: by member, subscription and number."""
        self.keys: dict[int, str | bytes | None] = {}
        """By ordinal of what was delivered."""
        self.delays = delays
        """Some messages have delivery times. Then no clock jumps, because that makes them early or late."""
        self.due_ms: dict[int, int] = {}
        """By ordinal of what was delivered: its delivery time."""
        self.waited = 0
        """Deliveries of messages that had to wait."""
        self.came: set[tuple[str, int]] = set()
        """Entries with delivery times that a subscription has delivered."""
        self.offset_ns = 0
        """How far the clock that is most ahead is ahead of the simulation."""
        self.resets = 0
        self.published = 0
        self.calm = False
        """Faults are over: no consumer leaves, and no cursor is reset."""

    def replica(self, node: SimNode) -> Replica:
        self.offset_ns = max(self.offset_ns, node.clock.now_ns() - self.sim.loop.now_ns)
        return Member(self, node)

    @property
    def latest_ms(self) -> int:
        """The time of the clock that is most ahead; log time is behind it."""
        return (self.offset_ns + self.sim.loop.now_ns) // 1_000_000

    # -- every delivery --------------------------------------------------------------------------------

    def look(self, dispatcher: Dispatcher, batch: Batch, consumer: int) -> None:
        """Check one delivery against the tables of all members of the latest view."""
        name = dispatcher.subscription[1]
        self.keys.update((message.ordinal, message.key) for message in batch)
        number = next((each for each, broker in self.brokers.items() if _has(broker, dispatcher)), None)
        if name not in SUBSCRIPTIONS or number is None:
            return
        self.delivered += 1
        self.owners[name].add(number)
        mine = self.brokers[number]
        latest = max(broker.engine.position.view for broker in self.brokers.values())
        if mine.engine.position.view < latest:
            return  # it may be cut off: it cannot know that another member owns the subscription
        tenure = dispatcher.tenure
        if tenure is None or (mine.ownership, dispatcher.subscription[0], tenure.epoch) not in self.settled:
            raise Broken(f"I69: node {number} dispatches {name} before it is stable that it owns it")
        self._note_due(name, batch)
        ordinals = sorted({message.ordinal for message in batch})
        sure = self.sure.get((name, dispatcher.reset_number), {})
        back = [each for each in ordinals if each in sure and sure[each] <= mine.engine.position]
        if back:
            raise Broken(f"{name}: {back} were acknowledged with a receipt and are delivered again")
        for other, broker in sorted(self.brokers.items()):
            if other != number and broker.group.member in mine.machine.state.members:
                self._compare(name, ordinals, dispatcher, other, broker)
        if SUBSCRIPTIONS[name] == "key_shared":
            self._by_key(ordinals, dispatcher, consumer, mine)
        elif SUBSCRIPTIONS[name] != "shared":
            self._in_order(name, ordinals[0], dispatcher)

    def _note_due(self, name: str, batch: Batch) -> None:
        """I271: nothing comes before its time, where no order forbids to wait."""
        for message in batch:
            due = message.data.partition(b" at ")[2]
            if due:
                self.due_ms[message.ordinal] = int(due)
            if due and SUBSCRIPTIONS[name] in ("shared", "key_shared"):
                early_ms = int(due) - self.latest_ms
                if early_ms > 0:
                    raise Broken(f"I271: {name}: {message.ordinal} comes {early_ms} ms before its time")
                self.came.add((name, message.ordinal))
                self.waited += 1

    def _by_key(self, ordinals: list[int], dispatcher: Dispatcher, consumer: int, mine: Broker) -> None:
        """I260, I261: a key is with one consumer of all members, and in order."""
        acks, table = dispatcher._cursor.acks, dispatcher._table
        if dispatcher._cursor.reset_number != dispatcher.reset_number:
            return  # a reset that is not stable yet has moved the cursor
        members = mine.machine.state.members
        there = [_dispatcher(each, "keys") for each in self.brokers.values() if each.group.member in members]
        others = [each for each in there if each not in (None, dispatcher)]
        for ordinal in ordinals:
            same = [each for each, key in self.keys.items() if key == self.keys[ordinal]]
            for each in same:
                if table.holder_of(each) not in (0, consumer):
                    raise Broken(f"I260: {ordinal} is delivered while another consumer holds {each}")
                for other in others:
                    assert other is not None
                    same_reset = other.reset_number == dispatcher.reset_number
                    if same_reset and other._table.holder_of(each):
                        raise Broken(f"I260: {ordinal} is delivered while another member holds {each}")
                waits = each in self.due_ms and ("keys", each) not in self.came
                known = waits or table.holder_of(each) or acks.is_acked(each)
                if each < ordinal and not known and not dispatcher._acking.covered(each, each + 1):
                    raise Broken(f"I261: {ordinal} is delivered before {each}, which has the same key")

    def _compare(
        self, name: str, ordinals: list[int], dispatcher: Dispatcher, other: int, broker: Broker
    ) -> None:
        there = _dispatcher(broker, name)
        if there is None or there.reset_number != dispatcher.reset_number:
            return
        if there.consumers and there.tenure is not None and there.tenure.standing == "owner":
            raise Broken(f"I68: two members dispatch {name}, one of them node {other}")
        twice = [ordinal for ordinal in ordinals if there._table.holder_of(ordinal)]
        if twice:
            raise Broken(f"I68: {name}: {twice} are delivered while a consumer of node {other} holds them")

    def _in_order(self, name: str, first: int, dispatcher: Dispatcher) -> None:
        """Require that no entry below a delivery waits to be delivered."""
        acks = dispatcher._cursor.acks
        if dispatcher._cursor.reset_number != dispatcher.reset_number or first <= acks.acked_to:
            return  # a reset that is not stable yet has moved the cursor
        known = merged([*dispatcher._table.held(), *dispatcher._acking.covered(acks.acked_to, first)])
        skipped = without([(acks.acked_to, first)], known)
        if skipped:
            raise Broken(f"{name}: {first} is delivered before {skipped}")

    # -- the end ---------------------------------------------------------------------------------------

    def backlog(self) -> dict[str, list[int]]:
        """Return the backlog of each subscription, as each broker has it."""
        return {
            name: [broker.admin.subscription_stats(TOPIC, name).backlog for broker in self.brokers.values()]
            for name in self.served
        }

    def done(self) -> bool:
        return self.at_rest() and not any(sum(each) for each in self.backlog().values())

    def finish(self) -> None:
        """Require that everything is acknowledged at last, and that the states are equal.

        Clocks are set to one time before, so that none is seconds late.
        """
        self.calm = True
        for node in self.sim.running.values() if self.delays else ():
            node.clock.jump((self.offset_ns + self.sim.loop.now_ns - node.clock.now_ns()) / 1e9)
        limit_s = self.sim.now_s + 20.0
        while not self.done():
            self.sim.run(0.05)
            if self.sim.now_s > limit_s:
                raise Broken(f"messages stay unacknowledged: {self.backlog()}\n{self.standings()}")
        self.ending = True
        digests = {number: broker.machine.digest().hex() for number, broker in self.brokers.items()}
        if len(set(digests.values())) != 1:
            raise Broken(f"I27: the states differ in the end: {digests}")
        for broker in self.brokers.values():
            broker.machine.check()

    def standings(self) -> str:
        lines = []
        for number, broker in sorted(self.brokers.items()):
            for name in self.served:
                there, state = _dispatcher(broker, name), broker.admin._topic(TOPIC).subscriptions[name]
                if there is None or there.tenure is None:
                    continue
                stats = there.stats()
                lines.append(
                    f"node {number} {name}: {there.tenure.standing} {there.tenure.epoch}, state "
                    f"{state.owner} {state.taken} idle {sorted(state.idle)} held {state.held}, position "
                    f"{stats.read_position} of {stats.acked_to}, pending {stats.pending_entries}, "
                    f"{stats.diagnosis.text}"
                )
        return "\n".join(lines)


def _has(broker: Broker, dispatcher: Dispatcher) -> bool:
    return any(dispatcher in topic.dispatchers.values() for topic in broker.topics.values())


def _dispatcher(broker: Broker, name: str) -> Dispatcher | None:
    for topic in broker.topics.values():
        if name in topic.subscriptions:
            return topic.dispatcher_of(topic.subscriptions[name])
    return None


class Member(Replica):
    """One member's broker with a producer, and a consumer of every subscription."""

    world: Owners

    def __init__(self, world: Owners, node: SimNode) -> None:
        super().__init__(world, node, 0)
        self.random = random.Random(node.random.integer(1 << 32))

    async def live(self, broker: Broker, life: int) -> None:
        node, world, self.life = self.sim_node, self.world, life
        assert node is not None
        try:
            await self.until_quorate(broker)
            world.serves(node, broker)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.publish(broker))
                for name, kind in world.served.items():
                    tasks.create_task(self.serve(broker, name, kind))
                if self.random.random() < 0.5:
                    name = next(iter(world.served))
                    tasks.create_task(self.serve(broker, name, world.served[name]))
            await node.clock.sleep(3600)
        except* (Closed, NoQuorum):
            pass
        finally:
            world.serves(node, None)
            with suppress(HoldfastError):
                await broker.close()

    async def until_quorate(self, broker: Broker) -> None:
        assert self.sim_node is not None
        while True:
            try:
                with suppress(Exists):
                    await broker.admin.create_topic(TOPIC)
                for name in self.world.served:
                    with suppress(Exists):
                        await broker.admin.create_subscription(TOPIC, name, start="earliest")
                return
            except NoQuorum:
                await self.sim_node.clock.sleep(0.1)

    async def publish(self, broker: Broker) -> None:
        async with broker.producer(TOPIC, batch=self.random.choice((1, 1, 3))) as producer:
            while not self.world.calm:
                some = [b"%d" % at for at in range(self.random.choice((1, 2, 9)))]
                due_ms = 0
                if self.world.delays and self.random.random() < 0.25:
                    due_ms = self.world.latest_ms + self.random.randrange(50, 600)
                    some = [b"%s at %d" % (each, due_ms) for each in some]
                due_ns = due_ms * 1_000_000 if due_ms else None
                await producer.send_many(some, key=f"k{self.random.randrange(6)}", deliver_at=due_ns)
                self.world.published += 1
                await self.rest()

    async def serve(self, broker: Broker, name: str, kind: SubscriptionType) -> None:
        """Consume, leave now and then, and come back; an exclusive consumer retries."""
        while not self.world.ending:
            try:
                async with broker.consumer(
                    TOPIC,
                    name,
                    type=kind,
                    receiver_queue=self.random.choice((1, 3, 10, 100)),
                    priority=self.random.choice((0, 0, 1)),
                    name=f"c{self.life}",
                    ack_timeout=self.random.choice((None, 0.3)),
                ) as consumer:
                    await self.take_some(broker, consumer, name, kind)
            except Busy:
                await asyncio.sleep(0.05)
            await self.rest()

    async def take_some(self, broker: Broker, consumer: Consumer, name: str, kind: SubscriptionType) -> None:
        chance, world = self.random, self.world
        for _ in range(chance.choice((3, 20, 60))):
            if world.ending:
                return
            try:
                messages = list(await consumer.receive_many(chance.choice((1, 4, 50)), timeout=0.1))
            except Timeout:
                if kind == "exclusive":
                    return
                consumer.redeliver()  # also what it has not acknowledged
                continue
            if not world.calm:
                await self.rest()
            if not world.calm and chance.random() < 0.03:
                await self.move(broker, name)
                continue
            if not world.calm and chance.random() < 0.15:
                consumer.nack(messages[0], delay=chance.choice((0, 0.05, None)))
                messages = messages[1:]
            if messages and (world.calm or chance.random() < 0.9):
                await self.acknowledge(broker, consumer, name, messages)

    async def acknowledge(
        self, broker: Broker, consumer: Consumer, name: str, messages: list[TopicMessage]
    ) -> None:
        receipt = self.random.random() < 0.6
        together = consumer.type in ("failover", "exclusive") and self.random.random() < 0.5
        with suppress(Outdated):
            if together:
                await consumer.ack_cumulative(messages[-1], receipt)
            else:
                await consumer.ack_many(messages, receipt)
            if receipt:
                whole = messages[-1:] if together else messages
                sure = self.world.sure.setdefault((name, messages[-1].reset_number), {})
                for each in whole:
                    if each.batch_size < 2:
                        sure.setdefault(each.ordinal, broker.engine.stable)

    async def move(self, broker: Broker, name: str) -> None:
        topic = broker.admin._topic(TOPIC)
        target = max(topic.first, topic.visible - self.random.choice((0, 1, 10, 50)))
        with suppress(CursorModifying, Timeout):
            await broker.admin.reset(TOPIC, name, topic.id_of(target) if target < topic.visible else "latest")
            self.world.resets += 1


@contextmanager
def observed(world: Owners) -> Iterator[None]:
    """Let the world look at every delivery."""
    deliver = Dispatcher._deliver

    def watched(self: Dispatcher, consumer: Attached, batch: Batch) -> None:
        world.look(self, batch, consumer.id)
        deliver(self, consumer, batch)

    settled = Effects.settled

    def noted(self: Effects, applied: Applied) -> None:
        for notice in applied.notices:
            if isinstance(notice, OwnerChanged):
                world.settled.add((self._broker.ownership, notice.subscription.id, notice.epoch))
        settled(self, applied)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_deliver", watched)
        patch.setattr(Effects, "settled", noted)
        yield


def squall(sim: Sim, faults: int, kinds: Sequence[str] = SQUALL) -> None:
    """Strike a few times in quick succession, then heal; crashed nodes return soon."""
    chance = SeededRandomness(sim.seed, "squall")
    for _ in range(faults):
        sim.run(chance.between(0.05, 0.3))
        kind = kinds[chance.integer(len(kinds))]
        number = sim.nodes[chance.integer(len(sim.nodes))]
        if kind == "split":
            sim.split([number])
        elif kind == "crash" and number in sim.running:
            sim.crash(number)
        elif kind == "pause" and number in sim.running:
            sim.pause(number, chance.between(0.01, 0.4))
        elif kind == "slow":
            sim.platter(number).slow(chance.between(1, 10))
        elif kind == "disk_fault":  # soon: a squall is short
            sim.platter(number).fail(1 + chance.integer(3), errno.EIO, ("write", "sync")[chance.integer(2)])
        elif kind not in ("crash", "pause"):
            strike(sim, kind, chance, {})
        if chance.happens(0.5):
            sim.run(chance.between(0.05, 0.4))
            sim.heal()
        for each in sim.nodes:
            if each not in sim.running and chance.happens(0.5):
                sim.restart(each)
    sim.heal()
    for each in sim.nodes:
        sim.platter(each).mend()
        if each not in sim.running:
            sim.restart(each)
    sim.run(0.2)


def run(
    seed: int,
    nodes: int = 3,
    seconds: float = 0.0,
    trouble: Trouble | None = None,
    simulation: type[Sim] = Sim,
) -> tuple[Owners, bytes]:
    """Run a squall, or a storm of some seconds, over brokers that share subscriptions.

    Returns the world and the trace.
    """
    with cluster.watched(), simulation(seed, nodes) as sim:
        few, jumps = seed % 2 == 1 and not seconds, trouble is not None and trouble.clock > 0
        delays = seed % 3 != 0 and not jumps
        world = Owners(sim, pause_s=0.1, few=few, delays=delays)
        sim.network.weather = Weather(delay_s=(1e-4, 10e-3), loss=0.02, detection_s=(0.005, 0.1))
        with observed(world):
            sim.boot(world.program)
            if seconds:
                storm(sim, seconds, every_s=(0.1, 1.0), trouble=trouble or SOME)
            else:
                sim.run(0.3)
                squall(sim, 1 + seed % 3, [each for each in SQUALL if each != "clock" or not delays])
            world.finish()
        world.checker.check()
        return world, bytes(sim.trace)


def everything(seed: int, seconds: float = 3.0) -> Owners:
    """Run a storm with faults of every kind, over three or five brokers."""
    return run(seed, 3 if seed % 3 else 5, seconds, EVERYTHING)[0]


if __name__ == "__main__":
    sys.stdout.buffer.write(run(int(sys.argv[1]))[1])
