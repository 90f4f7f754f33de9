"""Stores that differ, for elections: what members hold, what was stable, and what they say."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.broker.state import ViewMark
from holdfast.cluster import Hello, Outcome, decide
from holdfast.cluster.hello import CutMark, Held

MAIN = (
    *(Held(1, 1, 0, 10), Held(2, 1, 1, 11), Held(3, 1, 2, 12)),
    *(Held(4, 2, 0, 20), Held(5, 2, 1, 21)),
)
"""The frames of the primary history: two views."""
SECOND = MAIN[3]
"""The frame that begins the second view."""
CUT = CutMark(2, 200)


@dataclass(frozen=True)
class Node:
    """A node's directory."""

    number: int
    held: int
    """How many frames of the primary history it held."""
    own: int = 0
    """Frames behind them that it delivered to itself alone, at a split."""
    known: int = 0
    """Frames that it knows to be stable."""
    listed: int = 0
    """Frames that its journal does not have any more."""
    second: tuple[int, ...] = ()
    """The nodes of the second view; all by default."""
    kind: str = "whole"
    """Or `incomplete`, `fresh`: what it held is gone."""
    votes: int = 3
    """How many nodes the cluster had."""
    first: tuple[int, ...] = ()
    """The nodes of the first view; all by default."""
    recorded: bool = True
    """Whether its views say which nodes had a vote."""

    def hello(self) -> Hello:
        if self.kind == "fresh":
            return Hello(self.number, fresh=True)
        if self.kind == "incomplete":
            return Hello(self.number, complete=False, cuts=[CUT])
        main = MAIN[: self.held]
        last = main[-1]
        everyone = tuple(range(1, self.votes + 1))
        votes = everyone if self.recorded else ()
        views = {
            1: ViewMark(1, 1, self.first or everyone, 100, votes),
            4: ViewMark(2, 4, self.second or everyone, 200, votes),
        }
        own = [
            Held(last.last_d + at, last.view, last.index + at, 1000 * self.number + at)
            for at in range(1, self.own + 1)
        ]
        return Hello(
            self.number,
            cluster=b"c",
            history=[views[frame.last_d] for frame in main if frame.index == 0],
            stable_d=self.known,
            last_d=last.last_d + self.own,
            start_d=self.listed,
            frames=[frame for frame in (*main, *own) if frame.last_d > self.listed],
        )


def stable_of(nodes: Sequence[Node]) -> int:
    """Return how many frames can be stable: a majority held them in one view."""
    majority = len(nodes) // 2 + 1
    first = [node.held for node in nodes if not node.first or node.number in node.first]
    second = [node.held for node in nodes if node.held >= SECOND.last_d]
    return max(
        sorted(held, reverse=True)[majority - 1] if len(held) >= majority else 0 for held in (first, second)
    )


def require_nothing_lost(
    nodes: Sequence[Node], present: Sequence[Node], listed: Sequence[int] = ()
) -> Outcome:
    """Require that the elected store has all that was stable (I235).

    `listed`: the configured nodes, if they are others than `nodes`, which the cluster had.
    """
    decision = decide([node.hello() for node in present], listed or [node.number for node in nodes])
    if decision.outcome is Outcome.ELECT:
        elected = next(node for node in present if node.number == decision.node)
        assert elected.kind == "whole", f"{elected} cannot be elected"
        stable = stable_of(nodes)
        assert elected.held >= stable, f"{elected} lacks {stable} of {nodes}; present {present}"
    return decision.outcome


def random_nodes(seed: int, votes: int) -> list[Node]:
    """Return nodes as a crash of all of them may leave them."""
    chance = random.Random(seed)
    numbers = range(1, votes + 1)
    second = tuple(sorted(chance.sample(numbers, chance.randint(votes // 2 + 1, votes))))
    kinds = [chance.choice(("whole", "whole", "whole", "incomplete", "fresh")) for _ in numbers]
    held = [
        chance.randint(1, len(MAIN) if number in second and kind != "incomplete" else 3)
        for number, kind in zip(numbers, kinds, strict=True)
    ]
    stable = sorted(held, reverse=True)[votes // 2]
    made = []
    for number, kind, count in zip(numbers, kinds, held, strict=True):
        known = chance.randint(0, min(count, stable))
        own, listed = chance.choice((0, 0, 1, 2)), chance.randint(0, known)
        made.append(Node(number, count, own, known, listed, second, kind, votes))
    return made


def small_worlds() -> Iterator[list[Node]]:
    """Yield every way in which three whole stores can end around a new view."""
    for held in itertools.product((2, 3, 5), repeat=3):
        stable = sorted(held, reverse=True)[1]
        for own in itertools.product((0, 2), repeat=3):
            for knows in itertools.product((False, True), repeat=3):
                yield [
                    Node(at + 1, held[at], own[at], min(held[at], stable) if knows[at] else 0)
                    for at in range(3)
                ]


def quorate(nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """Yield every majority of the nodes."""
    for size in range(len(nodes) // 2 + 1, len(nodes) + 1):
        yield from itertools.combinations(nodes, size)


def _old(node: Node, seed: int) -> Node:
    """Return a node; for odd seeds, its views do not name the voters."""
    return replace(node, recorded=seed % 2 == 0)


def add_nodes(listed: int, seeds: Iterable[int] = range(300)) -> set[Outcome]:
    """Require that nothing is lost after empty nodes were added, up to so many (I235)."""
    outcomes, nodes = set(), range(1, listed + 1)
    for seed in seeds:
        before = [_old(node, seed) for node in random_nodes(seed, 3 if listed < 6 else 5)]
        added = [Node(node, 0, kind="fresh") for node in nodes[len(before) :]]
        for present in itertools.chain(quorate(before), [before]):
            outcomes.add(require_nothing_lost(before, [*present, *added], nodes))
    return outcomes


def drifting_nodes() -> Iterator[list[Node]]:
    """Yield five nodes whose two views had one node in common: the others never met."""
    first, second = (1, 2, 3), (3, 4, 5)
    for held in itertools.product((1, 3), (1, 3), (1, 3, 4, 5), (4, 5), (4, 5)):
        yield [
            Node(at + 1, count, second=second, first=first, votes=5, own=at % 2)
            for at, count in enumerate(held)
        ]


def random_drifting_nodes(seed: int) -> list[Node]:
    """Return five nodes of two views, each of some majority; see `random_nodes`."""
    chance = random.Random(seed)
    first, second = (tuple(sorted(chance.sample(range(1, 6), chance.randint(3, 4)))) for _ in range(2))
    made = []
    for number in range(1, 6):
        kind = chance.choice(("whole", "whole", "whole", "incomplete", "fresh"))
        held = chance.randint(1, 3) if number in first else 0
        if number in second and (not held or chance.random() < 0.5):
            held = 0 if kind == "incomplete" else chance.randint(4, 5)  # its copy began in the second view
        own = chance.choice((0, 0, 1, 2))
        made.append(Node(number, held, own, 0, 0, second, kind if held else "fresh", 5, first))
    return made


def shorten_list(worlds: Iterable[Sequence[Node]]) -> set[Outcome]:
    """Require that nothing is lost after nodes were removed, and listed nodes are absent (I235)."""
    outcomes = set()
    for nodes in worlds:
        for listed in itertools.chain(itertools.combinations(nodes, 3), itertools.combinations(nodes, 4)):
            for present in quorate(listed):
                outcomes.add(require_nothing_lost(nodes, present, [node.number for node in listed]))
    return outcomes


def remove_nodes(seeds: Iterable[int] = range(300)) -> set[Outcome]:
    """Require that nothing is lost after nodes were removed from the list (I235)."""
    outcomes = set()
    for seed in seeds:
        before = [_old(node, seed) for node in random_nodes(seed, 5)]
        for present in itertools.chain.from_iterable(itertools.combinations(before, n) for n in (1, 2, 3)):
            left = [node.number for node in present]
            outcomes.add(require_nothing_lost(before, present, left))
    return outcomes
