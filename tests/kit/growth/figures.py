"""Figures of a long run, and the judgement whether they grow.

A figure is a row of numbers, one for each round: descriptors, files, names, objects, bytes, calls. A round
creates and removes the same things each time, so every figure is level but for noise. The judgement is the
slope over all rounds (Theil and Sen: the median of the slopes of all pairs), which single peaks do not move.
No figure is a time.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PAIRS_MAX = 400
"""How many rounds a slope is computed from; of more rounds, every n-th."""
LONG = 24
"""From this many rounds on, the second half is judged by itself, too."""
NOISE = 4.0
"""A rise of at most this many median deviations from the line is noise."""


@dataclass(frozen=True)
class Kind:
    """The unit of a figure, and the rise over a run that is not growth."""

    unit: str
    slack: float
    """The rise that a short run may show without a leak, in the figure's unit."""


COUNT = Kind("", 2.0)
OBJECTS = Kind("", 60.0)
BYTES = Kind("B", 4096.0)
MEMORY = Kind("KiB", 4096.0)
"""Resident memory moves by whole pools of the allocator."""


def slope(values: Sequence[float]) -> float:
    """Return the median slope of all pairs of rounds.

    Example:
        >>> slope([1, 2, 3, 99, 5])
        1.0
    """
    step = max(1, len(values) // PAIRS_MAX)
    rows = list(enumerate(values))[::step]
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(rows, 2)]
    return statistics.median(slopes) if slopes else 0.0


@dataclass(frozen=True)
class Verdict:
    """One figure over a run."""

    name: str
    unit: str
    first: float
    """Median of the first third."""
    last: float
    """Median of the last third."""
    slope: float
    """Slope per round."""
    allowed: float
    """The rise over the whole run that is not growth."""
    rise: float
    late_rise: float
    """Like `grows`, over the second half of a long run: a cache that fills rises less and less."""

    @property
    def grows(self) -> bool:
        return self.rise > self.allowed and self.late_rise > self.allowed / 2

    def row(self) -> str:
        words = "GROWS" if self.grows else "level"
        return (
            f"  {self.name:34} {self.first:>14,.0f} {self.last:>14,.0f} {self.slope:>+12,.2f} "
            f"{self.allowed:>10,.0f} {self.unit:4} {words}"
        )


HEAD = f"  {'figure':34} {'first':>14} {'last':>14} {'slope/round':>12} {'allowed':>10} {'':4} verdict"


def judged(name: str, kind: Kind, values: Sequence[float]) -> Verdict:
    """Judge one figure.

    Example:
        >>> judged("files", COUNT, [7, 7, 8, 7, 7, 7]).grows, judged("files", COUNT, [7, 8, 9, 10]).grows
        (False, True)
    """
    found = slope(values)
    middle = statistics.median(values)
    centre = (len(values) - 1) / 2
    off = [abs(value - middle - found * (at - centre)) for at, value in enumerate(values)]
    allowed = kind.slack + NOISE * statistics.median(off)
    third = max(1, len(values) // 3)
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    late = values[len(values) // 2 :] if len(values) >= LONG else values
    late_rise = slope(late) * (len(late) - 1)
    return Verdict(name, kind.unit, first, last, found, allowed, found * (len(values) - 1), late_rise)


@dataclass
class Run:
    """The figures of a run, round by round."""

    name: str
    warm_up: int
    """Rounds at the start that do not count: caches fill, pools are created."""
    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    def note(self, figures: Mapping[str, tuple[Kind, float]]) -> None:
        """Add the figures of a round."""
        self.rounds += 1
        if self.rounds <= self.warm_up:
            return
        for name, (kind, value) in figures.items():
            self.kinds[name] = kind
            self.values.setdefault(name, []).append(value)

    def verdicts(self) -> list[Verdict]:
        return [judged(name, self.kinds[name], values) for name, values in self.values.items()]

    def growing(self) -> list[Verdict]:
        return [each for each in self.verdicts() if each.grows]

    def table(self) -> str:
        title = f"{self.name}: {self.rounds} rounds, the first {self.warm_up} to warm up"
        return "\n".join([title, HEAD, *(each.row() for each in self.verdicts())])

    def require_level(self) -> None:
        """Raise AssertionError with the table if a figure grows."""
        growing = self.growing()
        assert not growing, f"grows: {', '.join(each.name for each in growing)}\n{self.table()}"
