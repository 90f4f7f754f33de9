"""The time that a stopping server has: one deadline for all its parts."""

from __future__ import annotations

import time

CLOSE_S = 10.0
"""Time to leave the cluster and for the last snapshot, behind that for clients. Mostly it is not used."""


class StopTime:
    """Divides the time of a stop: first the clients, then the broker.

    Example:
        >>> stopping = StopTime(10.0)
        >>> stopping.within_s, stopping.clients_s()
        (20.0, 10.0)
    """

    def __init__(self, clients_s: float) -> None:
        self._clients_s = clients_s
        self._began_s: float | None = None

    @property
    def within_s(self) -> float:
        """The time after which the process has ended at the latest."""
        return self._clients_s + CLOSE_S

    def begin(self) -> None:
        """Start the time, once."""
        if self._began_s is None:
            self._began_s = time.monotonic()

    def clients_s(self) -> float:
        """Return the time that is left for clients."""
        return max(0.0, self._clients_s - self._gone_s())

    def broker_s(self) -> float:
        """Return the time that is left for the broker."""
        return max(0.0, self.within_s - self._gone_s())

    def _gone_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s
