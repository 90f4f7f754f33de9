"""Chance as an interface, so that a simulation can repeat it."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Randomness(Protocol):
    """Where tokens, jitter and choices come from.

    Example:
        >>> chance: Randomness = SystemRandomness()
        >>> len(chance.token(16))
        16
    """

    def fraction(self) -> float:
        """From 0 up to, but without, 1."""

    def token(self, size: int) -> bytes:
        """Draw bytes that no other process draws."""


class SystemRandomness:
    """The operating system's."""

    def fraction(self) -> float:
        return random.SystemRandom().random()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
