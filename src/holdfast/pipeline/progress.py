"""A named subscription that a stream reads: it moves only behind what the stream has durably finished.

Spark's calls, and what they prove:

* `commit(end)` comes when the *next* batch is written down: late, and never for the last batch of
  available-now.
* `latestOffset(start, limit)` comes before every batch, also when none follows: after the last batch of
  available-now, and first of all when a query starts again. `start` is the end of the last batch in Spark's
  commit log, because a batch that is in the offset log and not in the commit log is run before Spark asks.

So whatever `start` says is done: the sink has committed it, and no restart will ask for it again (I140). A
stream calls `finished(start)` there, and needs neither a listener nor a look into the checkpoint. What a
crash leaves undone is caught up by the first call of the next life.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Literal

from holdfast.client import Client, Progress
from holdfast.errors import Closed, CursorModifying, NoQuorum, NotFound, Timeout, TooManyConnections
from holdfast.pipeline.connecting import Address

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a batch waits for a broker that is away. The position is not lost: it is told later."""
PAUSE_MAX_S = 60.0
_AWAY = (Timeout, Closed, NoQuorum, TooManyConnections)


class Subscription:
    """Where a named subscription is, and how it is moved. Connects when it is first asked.

    Example:
        >>> Subscription(Address("holdfast://localhost:6650"), "billing").name
        'billing'
    """

    def __init__(self, address: Address, name: str, start: Literal["earliest", "latest"] = "latest") -> None:
        self.address = address
        self.name = name
        self.start = start
        """Where it begins if it has to be made."""
        self._client: Client | None = None
        self._told: dict[str, tuple[int, int]] = {}
        """Per topic, under which reset number it was moved how far: what need not be told again."""
        self._not_before = 0.0
        self._pause_s = 1.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # readers travel to their tasks

    def at(self, topic: str) -> Progress:
        """Where it is now; it is made if it is not there.

        Raises:
            NotFound: there is no such topic.
            Denied: this role may not consume from it.
            Timeout: no broker answers.
        """
        return self._connected().progress(topic, self.name, create=True, start=self.start)

    def finished(self, done: Mapping[str, tuple[int, int]]) -> None:
        """All below these positions is durable downstream: per topic the reset number and the position.

        A subscription that was reset since stays where the reset has put it. A broker that is away is told
        with a later call.

        Raises:
            NotFound: the subscription or its topic was deleted.
            Denied: this role may not consume from it.
        """
        for topic, (reset_number, position) in done.items():
            told = self._told.get(topic, (-1, -1))
            if told[0] == reset_number and told[1] >= position:
                continue
            if time.monotonic() < self._not_before:
                return
            try:
                self._connected().advance(topic, self.name, position, reset_number)
            except CursorModifying:
                pass  # who has reset it has the last word
            except _AWAY as error:
                self._wait(error)
                return
            except NotFound as error:
                raise NotFound(
                    f"{error}. The stream moves subscription {self.name!r} as it goes: make it again at the "
                    "stream's position, or start the stream without predefinedSubscription"
                ) from None
            self._pause_s = 1.0
            self._told[topic] = (reset_number, position)

    def close(self) -> None:
        """End the connection; the next call makes another one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _wait(self, error: Exception) -> None:
        log.warning("subscription %r stays behind for now: %s", self.name, error)
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self.address.client(PATIENCE_S)
        return self._client


__all__ = ["PATIENCE_S", "Subscription"]
