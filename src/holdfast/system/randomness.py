"""Randomness as an interface, so that a simulation can repeat it."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Randomness(Protocol):
    """Source of tokens, jitter and choices.

    Example:
        >>> chance: Randomness = SystemRandomness()
        >>> len(chance.token(16))
        16
    """

    def fraction(self) -> float:
        """Return a number from 0 up to, but not including, 1."""

    def token(self, size: int) -> bytes:
        """Return random bytes that no other process gets."""


class SystemRandomness:
    """Randomness of the operating system."""

    def fraction(self) -> float:
        return random.SystemRandom().random()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
