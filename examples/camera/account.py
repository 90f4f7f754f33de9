"""The account of a run: frames seen, missed, and sent while a consumer was away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Seen:
    """The frames that the lives of one consumer wrote down."""

    records: Any

    @property
    def lives(self) -> int:
        """Processes that saw a frame."""
        return len({*self.records["consumer"].tolist()})

    @property
    def seen(self) -> int:
        return len(self.records)

    @property
    def missed(self) -> int:
        """Frames that a living consumer was told to have missed."""
        return int(self.records["missed"].sum())

    @property
    def over_restarts(self) -> int:
        """How often a consumer went on with another provider, in one life."""
        numbers = zip(self.records["consumer"].tolist(), self.records["provider"].tolist(), strict=True)
        return sum(
            len({provider for _, provider in life}) - 1 for _, life in groupby(numbers, lambda pair: pair[0])
        )

    def faults(self, name: str, sent: int) -> Iterator[str]:
        """Yield faults: frames out of order, twice, never sent, or gaps that were not told."""
        numbers, missed = (self.records[key].astype(np.int64) for key in ("number", "missed"))
        same_life = np.diff(self.records["consumer"].astype(np.int64)) == 0
        steps = np.diff(numbers)
        if not self.seen:
            yield f"{name} saw no frame"
        if (steps <= 0).any():
            yield f"{name} saw a frame twice, or out of order"
        if (steps[same_life] != missed[1:][same_life] + 1).any():
            yield f"{name} was not told of a gap"
        if self.seen and int(numbers[-1]) > sent:
            yield f"{name} saw frame {numbers[-1]}, and only {sent} were sent"


@dataclass(frozen=True)
class Account:
    """The figures of a run."""

    sent: int
    consumers: Mapping[str, Seen]
    kills: Mapping[str, int]
    killed: set[int]
    """Pids of consumers that were killed while they were connected."""
    departed: set[int]
    """Pids of consumers whose deaths a provider was told of."""
    before: int
    """Free samples before the first consumer."""
    after: int
    """Free samples after the last consumer."""
    damage: list[str]
    """Faults that `Proxy.check()` found."""

    def faults(self) -> list[str]:
        """Return everything that must not be, in words."""
        found = [each for name, seen in self.consumers.items() for each in seen.faults(name, self.sent)]
        if self.after != self.before:
            found.append(f"{self.before - self.after} samples leaked")
        if not self.killed <= self.departed:
            found.append(f"{len(self.killed - self.departed)} deaths were not told to a provider")
        for name, seen in self.consumers.items():
            if seen.lives > self.kills.get(name, 0) + 1:
                found.append(f"{name} ended without a kill")
        return found + self.damage

    def lines(self, rate: float) -> list[str]:
        """Return the account in words."""
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items())
        rows: list[tuple[str, int, str]] = [("frames sent", self.sent, f"one each {1000 / rate:g} ms")]
        for name, seen in self.consumers.items():
            away = self.sent - seen.seen - seen.missed
            words = f"{seen.missed:,} missed, {away:,} sent while it was away"
            rows.append((f"{name} saw", seen.seen, f"{words}; went on after {seen.over_restarts} restarts"))
        rows += [
            ("kills", sum(self.kills.values()), f"with SIGKILL: {kills}"),
            ("deaths told", len(self.killed & self.departed), f"of {len(self.killed)} killed consumers"),
            ("samples before", self.before, "free, before the first consumer"),
            ("samples after", self.after, "free, after the last one"),
            ("samples leaked", self.before - self.after, "of those that killed processes held"),
        ]
        return [f"{name:18} {count:>9,}   {words}".rstrip() for name, count, words in rows]
