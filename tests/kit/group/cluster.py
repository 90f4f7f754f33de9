"""A simulated group whose members only record, and faults for it."""

from __future__ import annotations

import asyncio

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
