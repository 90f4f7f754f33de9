"""The simulation: nodes with clocks, randomness and disks, a network, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from types import TracebackType
from typing import Self

from holdfast.errors import Misuse
from holdfast.group.interface import WINDOW_BYTES, Member, Position, View
from tests.kit.sim.disk import Platter, SimDisk
from tests.kit.sim.group import SimGroup
from tests.kit.sim.loop import CURRENT, Life, SimLoop
from tests.kit.sim.network import Delivered, Endpoint, Network
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.trace import Trace

EPOCH_NS = 1_700_000_000_000_000_000


class SimClock:
    """A node's clocks. Wall clocks differ by seconds, so that no test relies on them."""

    def __init__(self, loop: SimLoop, offset_ns: int) -> None:
        self._loop = loop
        self._offset_ns = offset_ns
        self._booted_ns = loop.now_ns

    def now_ns(self) -> int:
        return EPOCH_NS + self._offset_ns + self._loop.now_ns

    def monotonic_ns(self) -> int:
        return self._loop.now_ns - self._booted_ns

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead or back."""
        self._offset_ns += round(seconds * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimNode:
    """The interface of a node's program: clock, randomness, disk and group of one life."""

    def __init__(self, sim: Sim, number: int, life: Life) -> None:
        self.number = number
        self.life = life
        self.random = SeededRandomness(sim.seed, life.name)
        self.clock = SimClock(sim.loop, SeededRandomness(sim.seed, f"clock {number}").integer(20) * 10**9)
        self.disk = SimDisk(sim.platter(number))
        self._sim = sim
        self._endpoint: Endpoint | None = None

    def group(
        self,
        explicit_holds: bool = False,
        window_bytes: int = WINDOW_BYTES,
        incarnation: int | None = None,
        view_floor: int = 0,
    ) -> SimGroup:
        """Return a new member with a new incarnation. Its views have ids above `view_floor`.

        The one before must have left or been lost.
        """
        if self._endpoint is not None and self._endpoint.up and not self._endpoint.leaving:
            raise Misuse(f"node {self.number} is still in the group as {self._endpoint.member}")
        member = self._sim.new_member(self.number, incarnation)
        chance = SeededRandomness(self._sim.seed, f"group {member}")
        context = copy_context()
        context.run(CURRENT.set, self.life)
        group = SimGroup(
            member,
            self._sim.network,
            chance,
            self._sim.trace,
            context,
            explicit_holds,
            window_bytes,
            view_floor,
        )
        self._endpoint = group.endpoint
        return group

    @property
    def member(self) -> Member | None:
        """The last member of this life."""
        return self._endpoint.member if self._endpoint is not None else None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the network has for this life, and its program has not taken."""
        return self._endpoint.inbox_bytes if self._endpoint is not None else 0

    def trace(self, *what: object) -> None:
        self._sim.trace.add(self.life.name, *what)

    def cut_off(self) -> None:
        """Cut this life off from the other nodes."""
        if self._endpoint is not None and self._endpoint.up:
            self._sim.network.kill(self._endpoint)


Program = Callable[[SimNode], Awaitable[None]]


class Sim:
    """A deterministic world of `nodes` nodes, each with one vote.

    The same seed gives the same run.


    Example:
        >>> from holdfast.group import Listener, Member, Position
        >>> class Printer(Listener):
        ...     def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        ...         print(event)
        >>> async def program(node: SimNode) -> None:
        ...     group = node.group()
        ...     await group.start(Printer() if node.number == 2 else Listener())
        ...     await node.clock.sleep(1)
        ...     group.mcast(b"from %d" % node.number)
        >>> with Sim(seed=5, nodes=2) as sim:
        ...     sim.boot(program)
        ...     sim.run(3)
        b'from 2'
        b'from 1'
    """

    def __init__(self, seed: int, nodes: int) -> None:
        self.seed = seed
        self.nodes = list(range(1, nodes + 1))
        self.loop = SimLoop(SeededRandomness(seed, "loop"))  # type: ignore[abstract]  # it has no sockets
        self.trace = Trace(lambda: (self.loop.now_ns, self.loop.steps))
        self.network = Network(self.loop, SeededRandomness(seed, "network"), nodes, self.trace)
        self.running: dict[int, SimNode] = {}
        self._programs: dict[int, Program] = {}
        self._platters = {node: Platter(SeededRandomness(seed, f"disk {node}")) for node in self.nodes}
        self._boots = dict.fromkeys(self.nodes, 0)
        self._members = dict.fromkeys(self.nodes, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(
                f"HOLDFAST_SEED={self.seed} repeats it; the end of its trace:\n{self.trace.text(40)}"
            )
        self.loop.close()

    def platter(self, node: int) -> Platter:
        """Return the node's medium, to slow it, fill it, or make it fail."""
        return self._platters[node]

    def new_member(self, node: int, incarnation: int | None = None) -> Member:
        """Return a member of a node, with a given number or the next one."""
        life = self._members[node] + 1 if incarnation is None else incarnation
        if life <= self._members[node]:
            raise Misuse(f"node {node} was {node}.{self._members[node]} before, and cannot be {node}.{life}")
        self._members[node] = life
        return Member(node, life)

    def missed(self, after: Position, before: View) -> list[View | Delivered]:
        """Return what a member has to apply from a position up to its cut.

        `after` must be a position that is known to be stable, or `BEGINNING`. Beyond it, a lost member may
        have events that are not in the history.
        """
        return [item for item in self.network.history if after < item.position < before.position]

    @property
    def now_s(self) -> float:
        return self.loop.time()

    # -- faults of nodes -------------------------------------------------------------------------------

    def boot(self, program: Program, *nodes: int) -> None:
        """Run the program on these nodes, or on all. `run` raises its errors."""
        for number in nodes or self.nodes:
            self._programs[number] = program
            self.restart(number)

    def restart(self, number: int) -> None:
        """Start the node's program again, with the files that its disk has kept."""
        if number in self.running:
            raise Misuse(f"node {number} is running; crash it first")
        self._boots[number] += 1
        life = Life(f"node {number}, boot {self._boots[number]}")
        node = self._new_node(number, life)
        self.running[number] = node
        self.trace.add("sim", "boot", life.name)
        context = copy_context()
        context.run(CURRENT.set, life)
        program = self._programs[number]

        async def main() -> None:
            try:
                await program(node)
            except Exception as error:
                self.loop.failures.append(error)

        self.loop.create_task(main(), name=f"program {life.name}", context=context)

    def _new_node(self, number: int, life: Life) -> SimNode:
        return SimNode(self, number, life)

    def crash(self, number: int, survival: float | None = None) -> None:
        """Stop the node between two instructions; its disk keeps synced data and some more."""
        node = self.running.pop(number)
        self.trace.add("sim", "crash", node.life.name)
        self.loop.end(node.life)
        node.cut_off()
        self.platter(number).crash(survival)

    def pause(self, number: int, seconds: float) -> None:
        """Pause the node's program, like SIGSTOP. The network continues for it."""
        life = self.running[number].life
        life.paused_until_ns = max(life.paused_until_ns, self.loop.now_ns + round(seconds * 1e9))
        self.trace.add("sim", "pause", life.name, seconds)

    def split(self, *sides: list[int]) -> None:
        """Connect nodes only within their side; nodes that are not named form one side."""
        self.trace.add("sim", "split", *sides)
        self.network.split(*sides)

    def cut(self, *links: tuple[int, int]) -> None:
        """Cut links, each in one direction: `(1, 2)` carries what 1 sends to 2."""
        self.trace.add("sim", "cut", *links)
        self.network.cut(*links)

    def jump(self, number: int, seconds: float) -> None:
        """Set the node's wall clock ahead or back; its monotonic clock runs on."""
        self.trace.add("sim", "jump", number, seconds)
        self.running[number].clock.jump(seconds)

    def heal(self) -> None:
        """Connect all nodes in both directions."""
        self.trace.add("sim", "heal")
        self.network.split()

    # -- running ---------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let this much virtual time pass."""
        self.loop.run(lambda: False, self.loop.now_ns + round(seconds * 1e9))

    def run_until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Let time pass until the condition holds.

        Raises:
            TimeoutError: the condition does not hold within the limit.
        """
        self.loop.run(condition, self.loop.now_ns + round(limit_s * 1e9))
        if not condition():
            raise TimeoutError(f"after {limit_s} virtual seconds it still does not hold")
