"""Publish the rows of a DataFrame exactly once and all together, whichever process dies.

A task writes into a *stage* of its own under a random id. A stage is durable and invisible to consumers. The
driver publishes all stages of a batch by one `sink.commit`. The broker stores its key and number, and ignores
a repeated batch. A stage without a commit is dropped by `abort`, or expires.

The key of a stream consists of its query id, from the checkpoint, and the sink's name. The key of a batch
write is random, chosen once in the driver. With `sinkName` and `batchId` it is fixed, so the write can be
repeated.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from holdfast.client import Client, Stage, StageReceipt
from holdfast.columns import Address
from holdfast.errors import BadConfiguration, HoldfastError, Misuse, Timeout
from holdfast.pipeline import options
from holdfast.pipeline.sink.rows import Rows, parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("holdfast.pipeline.sink")

HELD_BYTES = 4 << 20
"""Bytes that a task holds for all topics before it sends; memory does not grow with the batch."""
ABORT_S = 10.0
"""How long dropping stages may take. If it fails, they expire."""
STEPS = ("begin", "opened", "appended", "staged", "commit", "published", "abort", "aborted")
"""Steps of the protocol in order. Tests stop processes there."""
NEVER_OVERWRITTEN = (
    "a topic is appended to, never overwritten: write with mode('append') or INSERT INTO, or "
    "stream with outputMode('append'), the only one that Spark has for sinks in Python. "
    "For updates of a query, write in foreachBatch"
)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The result of a task, for the driver."""

    receipt: StageReceipt | None
    """None: the task had no rows."""
    rows: int
    query: str = ""
    """The stream's query id, which Spark passes only to tasks."""
    batch: int = -1


class Staging:
    """A task's stage: collects entries of many topics and sends them in large pieces."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.id = uuid.uuid4().bytes
        """Random, because numbers of tasks and attempts repeat in the next application (I142)."""
        self._stage: Stage | None = None
        self._held: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    @property
    def opened(self) -> bool:
        return self._stage is not None

    def open(self) -> None:
        """Open the stage before the first rows: then `largest` is known."""
        self._stage = self._client.stage(self.id)

    @property
    def largest(self) -> int | None:
        return self._client.message_bytes_max

    def add(self, topic: str, entries: list[bytes]) -> None:
        size = sum(map(len, entries))
        self._held.setdefault(topic, []).extend(entries)
        self._sizes[topic] = self._sizes.get(topic, 0) + size
        self._size += size

    def send(self, most: int = HELD_BYTES) -> Iterator[str]:
        """Send entries, the largest topic first, until half of `most` is left. Yield the topics."""
        if self._size <= most:
            return
        for topic in sorted(self._held, key=self._sizes.__getitem__, reverse=True):
            if self._size <= most // 2:
                return
            assert self._stage is not None
            entries = [part for each in self._held.pop(topic) for part in parts(each, self.largest)]
            self._stage.append_entries(topic, entries)
            self._size -= self._sizes.pop(topic)
            yield topic

    def close(self) -> StageReceipt | None:
        return None if self._stage is None else self._stage.close()

    def drop(self) -> None:
        if self._stage is not None:
            self._stage.drop()


class _Sink:
    """Common part of both writers."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        told = options.parse(given, "sink")
        if told["path"] is not None:
            raise BadConfiguration(
                f"the sink cannot write into the directory {told['path']!r}: its tasks are several "
                "processes, and only one may open a directory. Start `holdfast serve --data DIR`, give "
                "option service.url, and leave out path"
            )
        if overwrite:
            raise BadConfiguration(NEVER_OVERWRITTEN)
        self.address = Address.beside(told, "the sink", told["topic"])
        self.rows = Rows.of(schema, told["topic"], told["messagesPerEntry"])
        self.name: str | None = told["sinkName"]
        self.batch: int | None = told["batchId"]
        self.timeout_s: float = told["timeout"]

    def _reached(self, step: str) -> None:
        """Do nothing. Tests stop processes here."""

    def _stage(self, iterator: Iterator[pa.RecordBatch], query: str, batch: int) -> Staged:
        """Write the rows into a stage, in a task."""
        self._reached("begin")
        count, known = 0, frozenset[tuple[str, int]]()
        with self.address.client(self.timeout_s) as client:
            staging = self._staging(client)
            producer = f"{self.name or 'spark'}-{staging.id.hex()[:16]}"
            try:
                for rows in iterator:
                    for piece in self.rows.pieces(rows):
                        if not staging.opened:
                            staging.open()
                            self._reached("opened")
                        made = self.rows.entries(piece, producer, count, staging.largest)
                        known = self._require_versions(client, known)
                        for topic, entries in made.items():
                            staging.add(topic, entries)
                        count += piece.num_rows
                        self._sent(staging.send())
                self._sent(staging.send(0))
                receipt = staging.close()
            except BaseException as error:
                # Otherwise it expires. After a timeout the broker is not retried.
                if not isinstance(error, Timeout):
                    with contextlib.suppress(HoldfastError, OSError):
                        staging.drop()
                raise
        self._reached("staged")
        return Staged(receipt, count, query, batch)

    def _require_versions(
        self, client: Client, known: frozenset[tuple[str, int]]
    ) -> frozenset[tuple[str, int]]:
        """Check that topics have the versions of schemas that rows name.

        Returns all that were checked.

        Raises:
            Misuse: a topic does not have such a version.
        """
        for topic, version in sorted(self.rows.versions - known):
            if not client.has_schema(topic, version):
                raise Misuse(
                    f"column schemaVersion is {version} in a row, and {topic} has no schema of this version; "
                    "add the schema first, or leave out the column"
                )
        return known | self.rows.versions

    def _staging(self, client: Client) -> Staging:
        return Staging(client)

    def _sent(self, topics: Iterator[str]) -> None:
        for _ in topics:
            self._reached("appended")

    def _publish(self, key: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish all stages at once, in the driver.

        Raises:
            Misuse: the sink has already published a later batch.
            NotFound, Corrupt: a stage was dropped, or has changed; nothing was published.
            Timeout: the outcome is not known. The batch may be written again: it is published once.
        """
        self._reached("commit")
        receipts = [each.receipt for each in self._whole(messages) if each.receipt is not None]
        if receipts:
            with self.address.client(self.timeout_s) as client:
                published, reached = client.sink_commit_at(key, batch, receipts)
            if reached > batch:
                raise Misuse(
                    f"sink {key} has already published batch {reached}; this is batch {batch}, and whether "
                    "its rows were published is unknown. Was an old checkpoint restored, or were batches "
                    "renumbered? To publish the rows as new ones, choose another sinkName"
                )
            if not published:
                log.warning(
                    "sink %s: batch %d was published before; its rows were left out. This is normal after a "
                    "crash. If it happens with every batch, another query runs from a copy of this "
                    "checkpoint and publishes under the same key: give one of them another sinkName",
                    key,
                    batch,
                )
        self._reached("published")

    def _whole(self, messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
        staged = [each for each in messages if isinstance(each, Staged)]
        if len(staged) != len(messages):
            raise Misuse(
                f"{len(messages) - len(staged)} of {len(messages)} tasks did not return their stages; "
                "nothing was published: write the batch again"
            )
        return staged

    def _drop(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop stages, in the driver. A published stage no longer exists: nothing happens (I143)."""
        self._reached("abort")
        receipts = [each.receipt for each in messages if isinstance(each, Staged) and each.receipt]
        with self.address.client(min(ABORT_S, self.timeout_s)) as client:
            try:
                for receipt in receipts:
                    Stage(client, receipt.stage).drop()
            except (HoldfastError, OSError) as error:
                log.warning("stages of a failed batch stay until they expire: %s", error)
        self._reached("aborted")


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Writer of `df.write.format("holdfast")`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite)
        if self.batch is not None and self.name is None:
            raise BadConfiguration(
                "option batchId numbers the writes of a named sink; give option sinkName, too"
            )
        if self.batch is None:
            self.key, self.number = f"write/{uuid.uuid4()}", 0
        else:
            self.key, self.number = f"batch/{self.name}", self.batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator, "", self.number)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._publish(self.key, self.number, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._drop(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream.format("holdfast")`. It has no state: Spark creates one per call."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite)
        if self.batch is not None:
            raise BadConfiguration("option batchId is for df.write; Spark numbers a stream's batches")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch is None:
            raise Misuse("Spark did not pass query and batch to this task; nothing was written: use Spark 4")
        return self._stage(iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        queries = {(each.query, each.batch) for each in self._whole(messages)}
        if not queries:
            return
        if len(queries) > 1 or {batch for _, batch in queries} != {batchId}:
            raise Misuse(f"batch {batchId} was staged as {sorted(queries)}; nothing was published")
        ((query, _),) = queries
        self._publish(self._key(query), batchId, messages)

    def _key(self, query: str) -> str:
        return f"{query}/{self.name or 'spark'}"

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._drop(messages)


__all__ = ["STEPS", "BatchWriter", "Staged", "StreamWriter"]
