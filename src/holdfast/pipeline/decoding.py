"""From entries to Arrow: the core decodes, and asks here for what it cannot know.

Compressed payloads are opened, the parts of a chunked message are found and joined, and what is damaged is
refused or left out. Everything is per client batch or per chunk; nothing here is called for each message.

A chunked message belongs to whoever reads its last part. The others may stand before the range, and are
looked for there, once per range, in what is still kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast._core import Columns, Entries, chunks_in, packed_entry
from holdfast.errors import Corrupt, DataLoss, NotFound
from holdfast.pipeline.open_chunks import LOOK_BACK_BYTES
from holdfast.pipeline.packing import SIZE_MAX, Unpackable, unpack
from holdfast.pipeline.reading import EntryReader, topic_and_partition

log = logging.getLogger(__name__)

_LOOK_BACK_ENTRIES = 1024


@dataclass(frozen=True)
class Wish:
    """What is wanted of the messages."""

    columns: list[str]
    permissive: bool = False
    publish_min_us: int | None = None
    publish_max_us: int | None = None
    keys: tuple[bytes, ...] | None = None
    whole: int | None = None
    """What was trimmed behind this position is missed: a chunked message without its beginning is a loss
    (DataLoss). None: it is left out, with a warning."""

    def decoder(self, name: str) -> Columns:
        """A new decoder for a topic of this full name."""
        topic, partition = topic_and_partition(name)
        return Columns(
            self.columns,
            topic,
            partition,
            publish_min_us=self.publish_min_us,
            publish_max_us=self.publish_max_us,
            keys=self.keys,
        )

    @property
    def all_rows(self) -> bool:
        """No filter leaves out any."""
        return self.publish_min_us is None and self.publish_max_us is None and self.keys is None


@dataclass
class _Chunks:
    """Which parts of which chunked messages were seen, by their ordinals."""

    open: dict[bytes, list[int]] = field(default_factory=dict)

    def note(self, uuid: bytes, chunk: int, ordinal: int) -> None:
        """Parts count in order, from the first; a message that begins again begins anew."""
        parts = self.open.get(uuid)
        if chunk == 0:
            self.open[uuid] = [ordinal]
        elif parts is not None and chunk == len(parts):
            parts.append(ordinal)
        elif parts is not None and chunk > len(parts):
            self.open[uuid] = []  # one is missing: it will never be whole


class Decoding:
    """One range of one topic, while it is read."""

    def __init__(self, topic: EntryReader, start: int, stop: int, wish: Wish) -> None:
        self._topic = topic
        self._start = start
        self._stop = stop
        self._wish = wish
        self._decoder = wish.decoder(topic.name)
        self._chunks = _Chunks()
        self._before: _Chunks | None = None
        """What the look back has found; None: not needed so far."""
        self._looked_at_all = False
        """It went back to the first entry that is kept."""
        self.damaged = 0
        """Entries that were left out."""
        self.at = start
        """All before it was decoded."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises Corrupt, NotFound as `TopicReader.run` does."""
        while self.at < self._stop:
            try:
                run = self._topic.run(self.at, self._stop)
            except Corrupt as error:
                self._leave_out(*self._topic.locate(self.at), self.at, str(error), error)
                self.at += 1
                continue
            except NotFound:
                yield from self._rest()
                raise
            yield from self._decode(run)
            self.at += len(run)
        yield from self._rest()
        if self.damaged:
            log.warning(
                "%s: %d damaged entries were left out of %d to %d",
                self._topic.name, self.damaged, self._start, self._stop - 1,
            )  # fmt: skip

    def _rest(self) -> Iterator[pa.RecordBatch]:
        if len(self._decoder) > 0:
            yield pa.record_batch(self._decoder.finish())

    def _decode(self, run: Entries) -> Iterator[pa.RecordBatch]:
        at, why = 0, ""
        while why != "end":
            at, why = self._decoder.take(run, at)
            if why == "full":
                yield pa.record_batch(self._decoder.finish())
            elif why != "end" and not self._help(run, at, why):
                at += 1

    def _help(self, run: Entries, at: int, why: str) -> bool:
        """Whether the decoder can go on with this entry; otherwise with the next."""
        ordinal = run.first_ordinal + at
        words = self._decoder.fault() if why == "unsound" else ""
        if not words:
            try:
                payload = self._payload(run, at)
                if payload is not None:
                    self._decoder.expand(ordinal, payload)
                return payload is not None
            except Unpackable as error:
                words = str(error)
        place = f"{self._topic.name}, position {ordinal}: entry {run.ledger}:{run.first_entry + at}"
        self._leave_out(run.ledger, run.first_entry + at, ordinal, f"{place} is no message: {words}")
        return False

    def _payload(self, run: Entries, at: int) -> Any:
        """What the entry at which the decoder stopped holds; None: it is no message by itself."""
        compression, size, uuid, chunk, chunks, found = packed_entry(run, at)
        payload: bytes | None = found
        if chunks > 1:
            payload = self._join(uuid, chunk, chunks, run.first_ordinal + at, found)
        if payload is None or compression == 0:
            return payload
        return unpack(compression, size, payload)

    # -- chunks ----------------------------------------------------------------------------------------

    def _join(self, uuid: bytes, chunk: int, chunks: int, ordinal: int, payload: bytes) -> bytes | None:
        if chunk > 0 and uuid not in self._chunks.open:
            self._recall(uuid)
        self._chunks.note(uuid, chunk, ordinal)
        if chunk != chunks - 1:
            return None
        parts = self._chunks.open.pop(uuid, None)
        trimmed = parts is None and self._looked_at_all
        found, total = [], len(payload)
        for part in parts[:-1] if parts is not None and len(parts) == chunks else ():
            try:
                found.append(packed_entry(self._topic.run(part, part + 1), 0)[5])
            except NotFound:  # trimmed since it was seen: this message is hit, no other
                trimmed = True
                break
            total += len(found[-1])
            if total > SIZE_MAX:
                raise Unpackable(f"its parts together have more than {SIZE_MAX} bytes")
        if len(found) != chunks - 1:
            self._beheaded(ordinal, trimmed)
            return None
        return b"".join([*found, payload])

    def _beheaded(self, ordinal: int, trimmed: bool) -> None:
        """A message whose beginning is not to be found.

        Raises:
            DataLoss: it was trimmed, and whoever reads had a right to it.
        """
        words = f"{self._topic.name}, position {ordinal}: the beginning of this chunked message is gone"
        first, _ = self._topic.plan()
        if trimmed and self._wish.whole is not None and first > self._wish.whole:
            raise DataLoss(
                f"{words}: entries below {first} were trimmed; set failOnDataLoss=false to go on without it"
            )
        log.warning("%s, and it is left out", words)

    def _recall(self, uuid: bytes) -> None:
        """Parts that stand before the range."""
        if self._before is None:
            self._before = self._look_back()
        if uuid in self._before.open:
            self._chunks.open[uuid] = self._before.open[uuid]

    def _look_back(self) -> _Chunks:
        """All chunked messages that were open where the range begins."""
        seen: list[tuple[int, bytes, int]] = []
        stop, size = self._start, 0
        first, _ = self._topic.plan()
        while stop > first and size < LOOK_BACK_BYTES:
            start = at = max(first, stop - _LOOK_BACK_ENTRIES)
            while at < stop:
                try:
                    run = self._topic.run(at, stop)
                except (Corrupt, NotFound):  # whoever reads that range will say so
                    at += 1
                    continue
                seen += [(run.first_ordinal + place, uuid, chunk) for place, uuid, chunk in chunks_in(run)]
                size += run.space
                at += len(run)
            stop = start
        self._looked_at_all = stop <= first
        out = _Chunks()
        for ordinal, uuid, chunk in sorted(seen):
            out.note(uuid, chunk, ordinal)
        return out

    # -- damage ----------------------------------------------------------------------------------------

    def _leave_out(
        self, ledger: int, entry: int, ordinal: int, words: str, cause: Exception | None = None
    ) -> None:
        if not self._wish.permissive:
            raise Corrupt(f"{words}; mode=permissive reads on without it") from cause
        self.damaged += 1
        if "corrupt" in self._wish.columns and self._wish.all_rows:
            self._decoder.corrupt(ledger, entry, ordinal, words)
