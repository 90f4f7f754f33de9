"""Random faults of a simulation, from its seed: network, nodes, disks, clocks."""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields

from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import Sim


@dataclass(frozen=True)
class Trouble:
    """Weights of the kinds of faults."""

    split: float = 3.0
    heal: float = 3.0
    crash: float = 3.0
    pause: float = 1.0
    slow_disk: float = 0.5
    one_way: float = 0.0
    """A node is heard by another, and does not hear it."""
    some_links: float = 0.0
    """Two nodes lose their link, and both keep those to the others."""
    circle: float = 0.0
    """Each node keeps the links to its two neighbours alone."""
    disk_fault: float = 0.0
    """One of the next operations of a disk fails."""
    clock: float = 0.0
    """The wall clock of a node jumps, by up to a day."""


EVERYTHING = Trouble(one_way=1.0, some_links=1.0, circle=0.5, disk_fault=0.3, clock=0.5)
"""Faults of every kind."""


def storm(
    sim: Sim, seconds: float, every_s: tuple[float, float] = (0.05, 2.0), trouble: Trouble | None = None
) -> None:
    """Run with faults at random moments; then heal, restart all nodes, and wait.

    Crashed nodes return after up to five seconds. Programs must join again when they are lost.

    Example:
        >>> async def idle(node: object) -> None: ...
        >>> with Sim(seed=1, nodes=3) as sim:
        ...     sim.boot(idle)
        ...     storm(sim, 20)
        ...     print(sorted(sim.running), sim.now_s > 20)
        [1, 2, 3] True
    """
    chance = SeededRandomness(sim.seed, "storm")
    shares = trouble or Trouble()
    kinds = [each.name for each in fields(Trouble)]
    end = sim.now_s + seconds
    back: dict[int, float] = {}
    while sim.now_s < end:
        sim.run(chance.between(*every_s))
        for number in [number for number in sorted(back) if back[number] <= sim.now_s]:
            del back[number]
            sim.restart(number)
        at = chance.between(0, sum(getattr(shares, kind) for kind in kinds))
        for kind in kinds:
            at -= getattr(shares, kind)
            if at < 0:
                strike(sim, kind, chance, back)
                break
    sim.heal()
    for number in sorted(back):
        sim.restart(number)
    sim.run(5)


def strike(sim: Sim, kind: str, chance: SeededRandomness, back: dict[int, float]) -> None:
    """Let one fault of `Trouble` happen; `back` tells when crashed nodes return."""
    running = sorted(sim.running)
    if kind == "split":
        sides: dict[int, list[int]] = {}
        for number in sim.nodes:
            sides.setdefault(chance.integer(2 if chance.happens(0.7) else 3), []).append(number)
        sim.split(*(sides[key] for key in sorted(sides)))
    elif kind == "heal":
        sim.heal()
    elif kind == "crash" and running:
        number = running[chance.integer(len(running))]
        sim.crash(number)
        back[number] = sim.now_s + chance.between(0, 5)
    elif kind == "pause" and running:
        sim.pause(running[chance.integer(len(running))], chance.between(0.01, 2))
    elif kind == "slow_disk":
        sim.platter(sim.nodes[chance.integer(len(sim.nodes))]).slow(chance.between(0.3, 3))
    elif kind in ("one_way", "some_links", "circle"):
        sim.cut(*_links(sim, kind, chance))
    elif kind == "disk_fault":
        platter = sim.platter(sim.nodes[chance.integer(len(sim.nodes))])
        error = (errno.EIO, errno.ENOSPC)[chance.integer(2)]
        platter.fail(1 + chance.integer(50), error, ("write", "sync")[chance.integer(2)])
    elif kind == "clock" and running:
        sim.jump(running[chance.integer(len(running))], chance.between(-86_400, 86_400))


def _links(sim: Sim, kind: str, chance: SeededRandomness) -> list[tuple[int, int]]:
    """Choose the links that are cut, each in one direction."""
    nodes, count = sim.nodes, len(sim.nodes)
    if count < 2:
        return []
    if kind == "circle":
        near = {(a, b) for at, a in enumerate(nodes) for b in (nodes[at - 1], nodes[(at + 1) % count])}
        return [(a, b) for a in nodes for b in nodes if a != b and (a, b) not in near]
    one = chance.integer(count)
    other = (one + 1 + chance.integer(count - 1)) % count
    link = (nodes[one], nodes[other])
    return [link] if kind == "one_way" else [link, (link[1], link[0])]
