"""A named subscription that a stream reads: it moves only behind what the stream has durably finished.

Spark's calls, and what they prove:

* `commit(end)` comes when the *next* batch is written down: late, and never for the last batch of
  available-now.
* `latestOffset(start, limit)` comes before every batch, also when none follows: after the last batch of
  available-now, and first of all when a query starts again. `start` is the end of the last batch in Spark's
  commit log, because a batch that is in the offset log and not in the commit log is run before Spark asks.

So whatever `start` says is done: the sink has committed it, and no restart will ask for it again (I140). A
stream calls `finished` there, and needs neither a listener nor a look into the checkpoint. What a crash
leaves undone is caught up by the first call of the next life.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from holdfast.columns.address import Address
from holdfast.errors import CursorModifying, NotFound

if TYPE_CHECKING:
    from holdfast.client import Client, Progress

log = logging.getLogger("holdfast.pipeline.progress")

PATIENCE_S = 5.0
"""How long a batch waits for a broker that is away. The position is not lost: it is told later."""


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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # readers travel to their tasks

    def at(self, topic: str, incarnation: bytes = b"", create: bool = True) -> Progress:
        """Where it is now; with `create` it is made if it is not there.

        Raises:
            NotFound: there is no such topic, or it is of another incarnation, or has no such subscription.
            Denied: this role may not consume from it.
            Timeout: no broker answers.
        """
        try:
            return self._connected().progress(
                topic, self.name, create=create, start=self.start, incarnation=incarnation
            )
        except NotFound as error:
            raise NotFound(
                f"{error}. The stream moves subscription {self.name!r} as it goes: make it again at the "
                "stream's position, or start the stream without predefinedSubscription"
            ) from None

    def finished(self, topic: str, at: Progress, position: int) -> None:
        """All below this position is durable downstream: move it there, if it is where `at` said.

        A subscription that was reset since stays where the reset has put it.

        Raises:
            NotFound: the subscription or its topic was deleted.
            Denied: this role may not consume from it.
            Timeout: no broker answers. It is told with the next batch.
        """
        if position <= at.acked_to:
            return
        try:
            self._connected().advance(topic, self.name, position, at.reset_number, at.incarnation)
        except CursorModifying:
            log.info("subscription %r of %s was reset meanwhile, and stays there", self.name, topic)

    def close(self) -> None:
        """End the connection; the next call makes another one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self.address.client(PATIENCE_S)
        return self._client


__all__ = ["PATIENCE_S", "Subscription"]
