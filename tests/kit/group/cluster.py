"""A simulated group whose members only record, and faults for it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import NoQuorum
from holdfast.group import Position, View
from tests.kit.group.checker import Checker, Recorder
from tests.kit.sim import Sim, SimNode


class Cluster:
    """Recording members, by the numbers of their nodes."""

    def __init__(self, sim: Sim, explicit_holds: bool = False) -> None:
        self.sim = sim
        self.checker = Checker(len(sim.nodes))
        self.at: dict[int, Recorder] = {}
        self.explicit_holds = explicit_holds
        sim.network.weather.detection_s = (0.1, 0.3)

    async def program(self, node: SimNode) -> None:
        group = node.group(self.explicit_holds, window_bytes=1 << 16)
        recorder = Recorder(self.checker, group)
        recorder.holds_by_itself = not self.explicit_holds
        self.at[node.number] = recorder
        await group.start(recorder)

    def view(self, number: int) -> View | None:
        return self.at[number].story.views[-1] if self.at[number].story.views else None

    def together(self, *numbers: int) -> bool:
        """Return whether exactly these are in one view."""
        there = [number for number in numbers if number in self.sim.running and number in self.at]
        views = [self.view(number) for number in there if self.at[number].story.ended is None]
        return len(views) == len(numbers) and all(
            view is not None and [member.node for member in view.members] == list(numbers) for view in views
        )

    def form(self, *numbers: int) -> None:
        self.sim.boot(self.program, *numbers)
        self.sim.run_until(lambda: len(self.at) >= len(numbers) and self.together(*numbers))


def start_one_by_one(simulation: type[Sim]) -> None:
    """I23: no events before there is a majority; each member starts with its own view."""
    with simulation(2, nodes=5) as sim:
        cluster = Cluster(sim)
        cluster.form(1)
        with pytest.raises(NoQuorum):
            cluster.at[1].group.mcast(b"too early")
        for number in (2, 3, 4, 5):
            sim.boot(cluster.program, number)
            sim.run_until(lambda number=number: cluster.together(*range(1, number + 1)))  # type: ignore[misc]
            view = cluster.view(number)
            assert view is not None
            assert view.quorate == (number >= 3)
            assert view.is_cut_of(cluster.at[number].story.member) == view.quorate
            assert view.is_cut_of(cluster.at[1].story.member) == (number == 3), "its cut was the first of all"


def flood_a_paused_receiver(simulation: type[Sim]) -> tuple[int, int]:
    """I28: send to three members, one of which is paused.

    Returns the bytes that wait there then: in the network, and as its group tells.
    """
    event, window = 4 << 10, 1 << 16
    with simulation(6, nodes=3) as sim:
        cluster = Cluster(sim)
        cluster.form(1, 2, 3)
        sent = 0

        async def sender() -> None:
            nonlocal sent
            while True:
                cluster.at[1].send(bytes(event))
                sent += 1
                await cluster.at[1].group.drain()

        sim.loop.create_task(sender())
        sim.pause(3, 5.0)
        sim.run(4.0)
        held_back = sent
        assert held_back * event <= window + 2 * event
        waiting = sim.running[3].waiting_bytes, cluster.at[3].group.stats().waiting_bytes
        sim.run(3.0)
        assert sent > held_back + 100
        return waiting


def lose_a_majority_at_once(seed: int) -> tuple[Cluster, Position]:
    """Crash and restart 1 and 2, which hold an event that 3 lacks.

    The others have not noticed the crash by then.
    """
    with Sim(seed, nodes=3) as sim:
        cluster = Cluster(sim)
        cluster.form(1, 2, 3)
        survivor = cluster.at[3]
        sim.network.weather.detection_s = (5.0, 5.0)
        sim.split([1, 2], [3])
        sim.run(0.01)
        # Ordered while 3 cannot be reached, as if all packets to it had been lost.
        sim.network.split()
        pause_of_3 = sim.network._send
        sim.network._send = (  # type: ignore[method-assign]
            lambda ring, number, end: None if end.member.node == 3 else pause_of_3(ring, number, end)
        )
        cluster.at[1].send(b"stable without 3")
        sim.run_until(
            lambda: any(event == b"stable without 3" for _, event in cluster.checker.stable.values())
        )
        (pos,) = [p for p, (_, event) in cluster.checker.stable.items() if event == b"stable without 3"]
        assert survivor.story.last < pos
        for number in (1, 2):
            sim.crash(number)
            del cluster.at[number]
            sim.boot(cluster.program, number)
        sim.run_until(lambda: cluster.together(1, 2) or cluster.together(1, 2, 3), 30)
        sim.run(0.1)
        return cluster, pos


def turns(seed: int) -> list[int]:
    """Return the order of turns of three nodes that are always ready."""
    taken: list[int] = []

    async def program(node: SimNode) -> None:
        for _ in range(30):
            taken.append(node.number)
            await asyncio.sleep(0)

    with Sim(seed, nodes=3) as sim:
        sim.boot(program)
        sim.run(1)
    return taken
