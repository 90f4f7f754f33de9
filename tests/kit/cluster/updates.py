"""Scenes of a member that is updated while it serves; tests and mutants share them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from holdfast.broker import Broker
from holdfast.cluster import relay
from holdfast.errors import Busy
from holdfast.ledger.copies import survey
from holdfast.ledger.layout import INCOMPLETE
from tests.kit.broker.cluster import watched
from tests.kit.cluster.members import wipe
from tests.kit.cluster.storm import JoinWorld
from tests.kit.sim import Sim, SimDisk, SimNode

Answer = TypeVar("Answer")

SMALL, LARGE = 24, 96
"""Messages of the topics `small` and `large`: 3 and 12 sealed ledgers."""
SLOW = (0.02, 0.03)


class UpdateWorld(JoinWorld):
    """Three members with a small and a large topic, and members that join."""

    has_early = False
    """A message of a topic was received at a member that lacked ledgers of it."""

    async def publish(self, node: SimNode, broker: Broker) -> None:
        """Publish nothing by itself: scenes do."""

    def do(self, work: Coroutine[Any, Any, Answer], limit_s: float = 60.0) -> Answer:
        """Run a coroutine, with a limit of virtual time."""

        async def limited() -> Answer:
            async with asyncio.timeout(limit_s):
                return await work

        answer: Answer = self.sim.loop.run_until_complete(limited())
        return answer

    def send(self, number: int, topic: str, count: int, first: int = 0) -> None:
        self.do(self.sending(number, topic, count, first))

    async def sending(self, number: int, topic: str, count: int, first: int = 0) -> None:
        async with self.brokers[number].producer(topic) as producer:
            await producer.send_many([b"%d " % at + bytes(200) for at in range(first, first + count)])

    def take(self, number: int, topic: str, count: int, limit_s: float = 60.0) -> list[int]:
        """Receive and acknowledge messages of the subscription `s` at a member."""
        return self.do(self.taking(number, topic, count), limit_s)

    async def taking(self, number: int, topic: str, count: int) -> list[int]:
        found: list[int] = []
        broker = self.brokers[number]
        async with broker.consumer(topic, "s", type="shared", start="earliest") as consumer:
            async for message in consumer:
                self.has_early |= not self.has(number, topic)
                found.append(int(bytes(message.data).split()[0]))
                await consumer.ack(message)
                if len(found) == count:
                    break
        return found

    def lacking(self, number: int = 3) -> int:
        return self.members[number].status().lacking

    def has(self, number: int, topic: str) -> bool:
        return self.brokers[number].topic(f"persistent://public/default/{topic}").is_whole

    def restart_slowly(self, number: int = 3) -> None:
        """Restart a node, which then serves, and lacks ledgers of both topics."""
        self.wires.delay_s = SLOW
        self.sim.restart(number)
        self.sim.run_until(lambda: number in self.brokers)
        assert self.lacking(number) == 2

    def until_small(self, number: int = 3) -> None:
        """Let time pass until the small topic is ready there, not the large one."""
        self.sim.run_until(lambda: self.lacking(number) == 1)
        assert self.has(number, "small")
        assert not self.has(number, "large")

    def until_lost(self, number: int) -> None:
        """Let time pass until the others have noticed that a node is gone."""
        others = [broker for node, broker in self.brokers.items() if node != number]
        self.sim.run_until(lambda: all(len(each.machine.state.members) == 2 for each in others))

    def until_whole(self) -> None:
        self.sim.run_until(self.all_whole, 90.0)
        self.sim.run(1)
        digests = {broker.machine.digest() for broker in self.brokers.values()}
        assert len(digests) == 1
        for broker in self.brokers.values():
            broker.machine.check()
            assert not broker.store.missing


@contextmanager
def updating(seed: int = 1, wiped: bool = True) -> Iterator[UpdateWorld]:
    """Two members with both topics; node 3 is down, and has an empty disk."""
    with watched(), Sim(seed, 3) as sim:
        world = UpdateWorld(sim)
        sim.network.weather.detection_s = (0.005, 0.2)
        sim.boot(world.program)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        for topic, count in (("small", SMALL), ("large", LARGE)):
            world.do(world.brokers[1].admin.create_topic(topic, retention_bytes=-1))
            world.do(world.brokers[1].admin.create_subscription(topic, "s", start="earliest"))
            for first in range(0, count, 8):
                world.send(1, topic, 8, first)
        for broker in world.brokers.values():
            world.do(broker.store.snapshot())
        if wiped:
            wipe(world, 3)
        else:
            sim.crash(3)
            del world.members[3]
        sim.run(1)
        yield world
        world.checker.check()


# -- scenes that mutants must not survive --------------------------------------------------------------


def served_topic_by_topic() -> None:
    """The small topic is served while the large one is still fetched."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        assert world.take(3, "small", SMALL) == list(range(SMALL))
        assert world.lacking() == 1
        world.until_whole()
        assert world.take(3, "large", LARGE) == list(range(LARGE))


def owns_nothing_before() -> None:
    """I250: its consumers wait; then it owns, and they get everything."""
    with updating() as world:
        world.restart_slowly()
        broker = world.brokers[3]
        task = world.sim.loop.create_task(world.taking(3, "large", LARGE))
        world.until_small()
        subscription = broker.topic("persistent://public/default/large").subscriptions["s"]
        assert list(subscription.attached) == [broker.group.member]
        assert subscription.owner is None
        assert not task.done()
        found = world.sim.loop.run_until_complete(task)
        assert found == list(range(LARGE))
        assert not world.has_early, "a topic was dispatched before it was ready"


def holds_nothing_before() -> None:
    """I251: one whole member confirms nothing until the other one is whole, too."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        world.sim.crash(2)
        world.sim.run_until(lambda: len(world.brokers[1].machine.state.members) == 2)
        sent = world.sim.loop.create_task(world.sending(1, "small", 1, SMALL))
        while world.lacking():
            assert not sent.done(), "confirmed, and on one whole disk alone"
            world.sim.run(0.01)
        world.sim.run_until(sent.done)
        sent.result()
        world.sim.restart(2)
        world.until_whole()


def the_next_donor_goes_on() -> None:
    """A donor dies in the middle of a topic."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        status = world.members[3].status()
        world.sim.crash(status.donor)
        world.sim.run_until(lambda: world.lacking() == 0)
        after = world.members[3].status()
        world.sim.restart(status.donor)
        world.until_whole()
        assert after.donor != status.donor
        assert after.received + after.kept <= after.total + 16_000
        assert world.take(3, "large", LARGE) == list(range(LARGE))


def nothing_is_sent_again() -> None:
    """I234: a crash in the middle; ledgers that came are compared, the others are sent."""
    with updating() as world:
        world.restart_slowly()
        world.sim.run_until(lambda: len(world.brokers[3].store.missing) == 4)
        here = sum(world.do(SimDisk(world.sim.platter(3)).sizes("ledgers")).values())
        world.sim.crash(3)
        del world.members[3]
        before = world.wires.bytes
        world.sim.run(0.5)
        world.sim.restart(3)
        world.sim.run_until(lambda: 3 in world.brokers)
        world.until_whole()
        status = world.members[3].status()
        assert status.kept >= here > 20_000
        assert status.received <= status.total - here
        assert world.wires.bytes - before < status.received + 50_000
        assert world.take(3, "large", LARGE) == list(range(LARGE))


def power_cut_after_trims() -> None:
    """Trims without a snapshot of the joiner behind them; then all lose power."""
    with updating() as world:
        world.restart_slowly()
        for name in ("large", "small"):
            world.do(world.brokers[1].admin.delete_subscription(name, "s", force=True))
            world.do(world.brokers[1].admin.truncate(name))
        marked = True
        while marked:
            world.sim.run(0.001)
            marked = INCOMPLETE in world.do(SimDisk(world.sim.platter(3)).list(""))
        for number in sorted(world.sim.running):
            world.sim.crash(number)
        for number in world.sim.nodes:
            world.sim.restart(number)
        world.until_whole()
        world.send(3, "large", 3)


def damaged_on_the_way() -> None:
    """I252: a byte changes on its way; the file is sent again."""
    with updating() as world:
        world.restart_slowly()
        world.wires.damage = 3
        world.until_whole()
        assert world.wires.damage == 0
        assert world.take(3, "small", SMALL) == list(range(SMALL))
        assert world.take(3, "large", LARGE) == list(range(LARGE))


def frames_are_bounded(monkeypatch: Any) -> None:
    """The bound is small, and others publish all the time."""
    monkeypatch.setattr(relay, "KEPT_BYTES", 600)
    most = 0
    keep = relay.Relay._keep

    def kept(self: relay.Relay, item: Any) -> None:
        nonlocal most
        keep(self, item)
        if self.drops and not self.elected:
            most = max(most, self._kept_bytes)

    monkeypatch.setattr(relay.Relay, "_keep", kept)
    with updating() as world:
        world.wires.delay_s = (2e-3, 4e-3)

        async def publish() -> None:
            while 3 not in world.brokers:
                await world.sending(1, "small", 1, SMALL)
                await asyncio.sleep(0.003)

        publishing = world.sim.loop.create_task(publish())
        world.sim.restart(3)
        world.sim.run_until(lambda: 3 in world.brokers)
        world.sim.run_until(publishing.done)
        publishing.result()
        world.until_whole()
    assert 300 < most <= 600


def reads_say_why() -> None:
    """The newest messages are read while older ledgers are fetched; these say why they wait."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        topic = world.brokers[3].topic("persistent://public/default/large")
        world.sim.run_until(lambda: len(world.brokers[3].store.missing) == 6)
        assert len(world.do(topic.read(topic.visible - 1, 1, 1))) == 1
        with pytest.raises(Busy, match=r"is not here yet.*fetches 6 ledgers from other members"):
            world.do(topic.read(0, 1, 1))
        with pytest.raises(Busy, match="is not here yet"):
            world.do(topic.time_on(0))
        world.until_whole()
        assert len(world.do(topic.read(0, 1, 1))) == 1


def the_mark_stays() -> None:
    """I231: a directory that is being updated is not elected after a power cut."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        restart_all(world, down=(2,))
        found = world.sim.loop.run_until_complete(survey(SimDisk(world.sim.platter(3))))
        assert found.mark is not None
        world.sim.run_until(lambda: sorted(world.brokers) == [1, 3])
        assert world.members[1].status().reason == "its store has all that can be stable"
        world.sim.restart(2)
        world.until_whole()
        assert INCOMPLETE not in world.do(SimDisk(world.sim.platter(3)).list(""))
        assert world.take(2, "large", LARGE) == list(range(LARGE))


def restart_all(world: UpdateWorld, down: tuple[int, ...] = ()) -> None:
    for number in sorted(world.sim.running):
        world.sim.crash(number)
    for number in world.sim.nodes:
        if number not in down:
            world.sim.restart(number)
