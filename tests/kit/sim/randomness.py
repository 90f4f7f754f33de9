"""Chance that a seed repeats."""

from __future__ import annotations

import random


class SeededRandomness:
    """Repeat draws by a seed; each `stream` has draws of its own."""

    def __init__(self, seed: int, stream: str = "") -> None:
        self._random = random.Random(f"{seed}/{stream}")  # of a str: through SHA-512, not through hash()

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
