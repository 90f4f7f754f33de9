"""Randomness that a seed repeats."""

from __future__ import annotations

import random


class SeededRandomness:
    """Repeats draws by a seed; each `stream` has its own draws."""

    def __init__(self, seed: int, stream: str = "") -> None:
        self._random = random.Random(f"{seed}/{stream}")  # a str seeds by SHA-512, not by hash()

    def integer(self, below: int) -> int:
        return self._random.randrange(below)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability
