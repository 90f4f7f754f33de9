"""Advance the named subscription of a stream behind the batches that are finished.

Spark's calls, and what each proves:

* `commit(end)` is called when the *next* batch is logged: late, and never for the last batch of
  available-now.
* `latestOffset(start, limit)` is called before every batch, also if no batch follows: after the last batch of
  available-now, and first of all when a query restarts. `start` is the end of the last batch in Spark's
  commit log. A batch that is only in the offset log runs before Spark calls.

So everything before `start` is done: the sink has committed it, and no restart reads it again (I140). A
stream calls `finished` there. It needs neither a listener nor the checkpoint. After a crash, the first call
of the next process catches up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from holdfast.columns import Address
from holdfast.errors import CursorModifying, NotFound

if TYPE_CHECKING:
    from holdfast.client import Client, Progress

log = logging.getLogger("holdfast.pipeline.progress")

PATIENCE_S = 5.0
"""How long a batch waits for an unreachable broker. A later batch sends the position."""


class Subscription:
    """A named subscription: its progress, and its advance. It connects at the first call.

    Example:
        >>> Subscription(Address("holdfast://localhost:6650"), "billing").name
        'billing'
    """

    def __init__(self, address: Address, name: str, start: Literal["earliest", "latest"] = "latest") -> None:
        self.address = address
        self.name = name
        self.start = start
        """Where it starts if it is created."""
        self._client: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # readers are sent to tasks

    def at(self, topic: str, incarnation: bytes = b"", create: bool = True) -> Progress:
        """Return its progress; with `create`, create it if it does not exist.

        Raises:
            NotFound: the topic or subscription does not exist, or the topic has another incarnation.
            Denied: this role may not consume from the topic.
            Timeout: the broker does not respond.
        """
        try:
            return self._connected().progress(
                topic, self.name, create=create, start=self.start, incarnation=incarnation
            )
        except NotFound as error:
            raise NotFound(
                f"{error}. The stream needs subscription {self.name!r}: create it again at the stream's "
                "position, or start the stream without predefinedSubscription"
            ) from None

    def finished(self, topic: str, at: Progress, position: int) -> None:
        """Advance it to `position`: all entries before that are durable downstream.

        A subscription that was reset since `at` stays at the reset.

        Raises:
            NotFound: the subscription or its topic was deleted.
            Denied: this role may not consume from the topic.
            Timeout: the broker does not respond. The next batch sends the position.
        """
        if position <= at.acked_to:
            return
        try:
            self._connected().advance(topic, self.name, position, at.reset_number, at.incarnation)
        except CursorModifying:
            log.info("subscription %r of %s was reset meanwhile, and was not advanced", self.name, topic)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self.address.client(PATIENCE_S)
        return self._client


__all__ = ["PATIENCE_S", "Subscription"]
