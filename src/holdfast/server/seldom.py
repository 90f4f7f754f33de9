"""Log a repeated state at growing intervals."""

from __future__ import annotations

FIRST_S, MOST_S = 2.0, 600.0
KEPT = 64
"""How many different texts are remembered."""


class Seldom:
    """Decides whether a text is logged: first, then after 2 s, 4 s, … 10 minutes.

    Example:
        >>> seldom = Seldom()
        >>> [at for at in range(12) if seldom.is_due("it waits", at)]
        [0, 2, 6]
    """

    def __init__(self) -> None:
        self._next: dict[str, tuple[float, float]] = {}
        """By text: when it is due again, and the interval after that."""

    def is_due(self, text: str, now_s: float) -> bool:
        """Return whether to log a text now, and count it if so."""
        due_s, pause_s = self._next.get(text, (now_s, FIRST_S))
        if now_s < due_s:
            return False
        if len(self._next) >= KEPT:
            self._next.clear()
        self._next[text] = now_s + pause_s, min(2 * pause_s, MOST_S)
        return True
