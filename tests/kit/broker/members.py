"""Brokers on the simulated group that announce themselves, and share options and housekeeping."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from typing import Any

from holdfast.broker.broker import Broker
from holdfast.broker.events import LedgerRoll, decode
from holdfast.broker.membership import owner_of_topic
from holdfast.broker.options import BrokerOptions
from holdfast.errors import Closed, HoldfastError, NoQuorum
from holdfast.group import Member, Position
from holdfast.names import topic_name
from tests.kit.broker.events import events_in
from tests.kit.cluster.link import Wires
from tests.kit.cluster.simulated import sim_member
from tests.kit.sim import Sim, SimNode

TOPICS = [topic_name(f"topic{number}") for number in range(8)]
ROLL_ENTRIES = 10


class Members:
    """Three brokers whose configurations differ, and the sealings that they asked for."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.wires = Wires(sim)
        self.brokers: dict[int, Broker] = {}
        self.sealed: dict[tuple[str, int], list[tuple[Member, Member | None]]] = {}
        """By topic and ledger: senders of `LedgerRoll`, each with the owner when it was applied."""
        self.states: dict[Position, bytes] = {}
        self.compared = 0
        self.sent = Counter[str]()

    async def program(self, node: SimNode) -> None:
        options = BrokerOptions(
            roll_entries=ROLL_ENTRIES * node.number, housekeeping_s=0.5, reserve_bytes=4096
        )
        member = sim_member(self.wires, node, self.sim.nodes, options)
        while True:
            broker = await member.join()
            with suppress(Closed, NoQuorum, HoldfastError):
                await self.live(broker, node)
            await node.clock.sleep(0.2)

    async def live(self, broker: Broker, node: SimNode) -> None:
        self.watch(broker)
        try:
            broker.membership.announce(f"node{node.number}", url=f"pulsar://node{node.number}:6650")
            self.brokers[node.number] = broker
            await self.publish(broker, node)
        finally:
            self.brokers.pop(node.number, None)
            with suppress(HoldfastError):
                await broker.close()

    async def publish(self, broker: Broker, node: SimNode) -> None:
        while True:
            for name in TOPICS:
                try:
                    async with broker.producer(name) as producer:
                        await producer.send_many([b"x"] * 3)
                    self.sent[name] += 3
                except NoQuorum:
                    pass
            await node.clock.sleep(0.2)

    def watch(self, broker: Broker) -> None:
        """Compare the states at stable positions, and note sealings with their sender."""
        machine = broker.machine
        apply = machine.apply
        unstable: deque[tuple[Position, bytes]] = deque()

        def watched(view: int, index: int, member: Member, frame: bytes) -> Any:
            for kind, version, body in events_in(frame):
                if kind == LedgerRoll.kind:
                    event: Any = decode(kind, version, body)
                    self.note(broker, event, member)
            applied = apply(view, index, member, frame)
            unstable.append((Position(view, index), machine.digest()))
            while unstable and unstable[0][0] <= broker.engine.stable:
                self.compare(*unstable.popleft())
            return applied

        machine.apply = watched  # type: ignore[method-assign]

    def compare(self, position: Position, digest: bytes) -> None:
        """I27: require equal states at equal positions."""
        self.compared += position in self.states
        assert self.states.setdefault(position, digest) == digest, f"I27: two states at {position}"

    def note(self, broker: Broker, event: LedgerRoll, member: Member) -> None:
        if member != broker.group.member:
            return  # the sender notes it
        name = broker.machine.state.topics[event.topic].name
        owner = owner_of_topic(broker.machine.state, name)
        self.sealed.setdefault((name, event.ledger), []).append((member, owner))

    def all_known(self) -> bool:
        """Return whether every node serves, and all are known to all in their present life."""
        found = [broker.membership.members() for broker in self.brokers.values()]
        return len(found) == 3 and all(len(each) == 3 for each in found)

    def all_kept(self) -> bool:
        """Return whether a ledger of each topic was sealed."""
        return len({name for name, _ in self.sealed}) == len(TOPICS)
