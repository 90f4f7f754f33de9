"""Stages: durable entries, invisible until a sink commits them at once, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._core import encode_messages
from holdfast.broker.api.producer import cut_run
from holdfast.broker.events import (
    Committed,
    SinkCommit,
    StageAppend,
    Staged,
    StageDrop,
    StageOpen,
    require_stage,
    stage_digest,
)
from holdfast.errors import Closed, Corrupt

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic


@dataclass(frozen=True)
class StageReceipt:
    """The content of a stage. A commit refuses a stage that differs from its receipt."""

    stage: bytes
    parts: tuple[tuple[int, int, int], ...]
    """Per topic: its id, how many entries, their digest."""

    def encode(self) -> list[tuple[bytes, int, int, int]]:
        """Return the receipt in the form of the commit."""
        return [(self.stage, topic, count, digest) for topic, count, digest in self.parts]


Parts = list[tuple[bytes, int, int, int]]
"""The parts of a commit: stage, topic, number of entries, their digest."""


class Stages:
    """Operations on stages by id, for front ends and `Stage`. See `Broker.stages`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def open(self, id: bytes) -> None:  # noqa: A002
        """Create a stage; does nothing if it exists."""
        await self._broker.admit(0)
        await self._broker.engine.submit(StageOpen(id))

    async def append(self, id: bytes, topic: Topic, at: int, entries: list[bytes], size: int) -> Staged:  # noqa: A002
        """Append entries for a topic after the `at` entries that the stage has.

        `size` is the room that they need on the disk.
        """
        await self._broker.admit(size)
        staged: Staged = await self._broker.engine.submit(StageAppend(id, topic.id, at, entries))
        return staged

    async def receipt(self, id: bytes) -> StageReceipt:  # noqa: A002
        """Return the receipt of a stage; its content is durable then.

        Raises:
            NotFound: the stage was dropped or committed.
        """
        stage = require_stage(self._broker.machine.state, id)
        parts = tuple((topic, part.count, part.digest) for topic, part in sorted(stage.topics.items()))
        await self._broker.settle()
        return StageReceipt(id, parts)

    async def drop(self, id: bytes) -> None:  # noqa: A002
        """Drop a stage; does nothing once it is committed."""
        await self._broker.engine.submit(StageDrop(id))

    async def commit(self, key: str, batch: int, parts: Parts) -> Committed:
        """Publish stages in all their topics at once, once per key and batch."""
        await self._broker.admit(0)
        committed: Committed = await self._broker.engine.submit(SinkCommit(key, batch, parts))
        return committed


class Stage:
    """A stage, opened by `Broker.stage`. Append entries, close it, and commit its receipt.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         stage = await broker.stage()
        ...         await stage.append("orders", [b"rope", b"tar"])
        ...         receipt = await stage.close()
        ...         print(await broker.sink_commit("nightly", 1, [receipt]))
        ...         print(await broker.sink_commit("nightly", 1, [receipt]))
        ...         print([m.data for m in await broker.admin.examine("orders", count=9)])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        True
        False
        [b'rope', b'tar']
    """

    def __init__(self, broker: Broker, id: bytes) -> None:  # noqa: A002
        self._broker = broker
        self.id = id
        self._parts: dict[int, Staged] = {}
        self._closed = False
        self._order = asyncio.Lock()
        """Each append names the number of entries before it, so appends must not overlap."""

    async def append(
        self,
        topic: str,
        data: Sequence[bytes],
        *,
        key: str | bytes | None = None,
        properties: dict[str, str] | None = None,
        batch: int = 1,
    ) -> None:
        """Append messages for a topic. They are durable when it returns, and invisible.

        Raises:
            NoSpace: the disk is full; the stage is unchanged.
            Corrupt: an earlier append was cancelled, and its entries were appended nevertheless.
        """
        broker = self._broker
        async with self._order:
            self._require_open()
            found = await broker.ensure_topic(topic)
            where = found.id
            start = 0
            while start < len(data):
                run = cut_run(data, start, topic)
                start += len(run)
                before = self._parts.get(where, Staged(0, 0))
                at = before.count
                now_ms = broker.clock.now_ns() // 1_000_000
                entries = encode_messages(
                    run, "stage", at, now_ms, key=key, properties=properties, batch=batch
                )
                staged = await broker.stages.append(self.id, found, at, entries, sum(map(len, run)))
                if staged != Staged(at + len(entries), stage_digest(entries, before.digest)):
                    raise Corrupt(
                        f"stage {self.id.hex()} holds entries for {topic} of an append that was cancelled; "
                        "drop the stage, and stage the batch again"
                    )
                self._parts[where] = staged

    async def close(self) -> StageReceipt:
        """Close the stage, and return its receipt for `Broker.sink_commit`."""
        async with self._order:  # an append under way belongs to the receipt
            self._require_open()
            self._closed = True
        parts = ((topic, staged.count, staged.digest) for topic, staged in sorted(self._parts.items()))
        return StageReceipt(self.id, tuple(parts))

    async def drop(self) -> None:
        """Drop the stage; does nothing once it is committed."""
        self._closed = True
        await self._broker.stages.drop(self.id)

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"stage {self.id.hex()} was closed; open another one")
