"""Chance as an interface, so that a simulation can repeat it."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Randomness(Protocol):
    """Where tokens, jitter and choices come from.

    Example:
        >>> chance: Randomness = SeededRandomness(7)
        >>> again: Randomness = SeededRandomness(7)
        >>> chance.integer(1000) == again.integer(1000)
        True
    """

    def integer(self, below: int) -> int:
        """From 0 up to, but without, `below`."""

    def fraction(self) -> float:
        """From 0 up to, but without, 1."""

    def token(self, size: int) -> bytes:
        """That many bytes, which nobody else draws."""


class SystemRandomness:
    """The operating system's."""

    def integer(self, below: int) -> int:
        return secrets.randbelow(below)

    def fraction(self) -> float:
        return random.SystemRandom().random()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)


class SeededRandomness:
    """The same draws for the same seed. `stream` names draws that do not disturb those of other streams."""

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
