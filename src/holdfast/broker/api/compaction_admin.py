"""Administration of compaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.broker.events import CompactionForget, CompactionRequest
from holdfast.names import topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic


@dataclass(frozen=True)
class CompactionStats:
    """The compaction of one topic. Times are log time in ns since 1970; 0: never."""

    state: Literal["never", "running", "done", "failed"]
    """Of the last compaction. "running" also while it waits for its turn, or for another member."""
    error: str
    """Why the last compaction failed; empty: it did not."""
    error_time: int
    requested: int
    """When the compaction under way was requested."""
    view: int
    """Number of the view that readers get; 0: without a view."""
    time: int
    """When the view was complete."""
    entries: int
    size: int
    """Bytes of the view."""
    read: int
    """Messages that were read to make the view."""
    kept: int
    """Messages in it."""
    duration_ms: int
    ledger: int
    """Number of the file with the entries of the view; 0: without entries."""
    horizon: str
    """Id of the first message behind the view; "end": it is the next one."""
    size_behind: int
    """Bytes of the topic that are not in the view."""
    threshold: int
    """Bytes behind the view at which the topic is compacted; 0: only on request."""
    succeeded: int
    """Compactions of this member since its start."""
    failed: int
    removed: int
    """Messages that these left out."""


def compaction_stats(broker: Broker, topic: Topic) -> CompactionStats:
    """Return the state of a topic's compaction, and its figures."""
    compaction, compactions = topic.state.compaction, broker.compactions
    view = None if compaction is None else compaction.view
    succeeded, failed = compactions.counts.get(topic.id, (0, 0))
    state: Literal["never", "running", "done", "failed"] = "never"
    requested = 0 if compaction is None else compaction.requested
    if requested or topic.id in compactions.finishing:
        state = "running"  # also until its figures count the new view
    elif compaction is not None and compaction.error:
        state = "failed"
    elif view is not None:
        state = "done"
    behind = topic.first if view is None else max(topic.first, view.horizon)
    return CompactionStats(
        state=state,
        error="" if compaction is None else compaction.error,
        error_time=0 if compaction is None else compaction.error_time,
        requested=requested,
        view=0 if view is None else view.number,
        time=0 if view is None else view.time,
        entries=0 if view is None else view.entries,
        size=0 if view is None else view.size,
        read=0 if view is None else view.read,
        kept=0 if view is None else view.kept,
        duration_ms=0 if view is None else view.duration_ms,
        ledger=0 if view is None else view.file,
        horizon=topic.id_text(behind),
        size_behind=topic.size_behind(behind) if topic.visible > behind else 0,
        threshold=compactions.threshold(topic),
        succeeded=succeeded,
        failed=failed,
        removed=compactions.removed.get(topic.id, 0),
    )


class CompactionAdmin:
    """The part of `Admin` for compaction.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with broker.producer("prices") as p:
        ...             for price in (b"3", b"4", b""):
        ...                 await p.send(price, key="rope")
        ...             await p.send(b"7", key="tar")
        ...         await broker.admin.compact("prices", wait=True)
        ...         found = broker.admin.compaction("prices")
        ...         print(found.state, found.read, found.kept)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        done 4 1
    """

    _broker: Broker

    async def compact(self, topic: str, *, wait: bool = False) -> None:
        """Compact a topic: of each key its view keeps the newest message.

        The topic itself keeps all messages, as its retention says. Returns when the request is durable; with
        `wait`, when the compaction has ended.

        Raises:
            Busy: the topic is being compacted.
            NotFound: the topic does not exist.
            Misuse: it is an exchange, or partitioned: compact its partitions.
        """
        found = self._broker.topic(topic_name(topic))
        await self._broker.engine.submit(CompactionRequest(found.id))
        if wait:
            await self._broker.compactions.ended(found)

    async def forget_compaction(self, topic: str) -> None:
        """Remove the compacted view of a topic. Messages that only the view had are gone.

        A compaction under way ends.

        Raises:
            NotFound: the topic does not exist.
        """
        await self._broker.engine.submit(CompactionForget(self._broker.topic(topic_name(topic)).id))

    def compaction(self, topic: str) -> CompactionStats:
        """Return the state of a topic's compaction, and its figures.

        Raises:
            NotFound: the topic does not exist.
        """
        return compaction_stats(self._broker, self._broker.topic(topic_name(topic)))
