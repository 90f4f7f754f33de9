"""Decode entries to Arrow: the core decodes, and asks here for what it cannot know.

Here compressed payloads are opened, the parts of chunked messages are found and joined, and damaged entries
are refused or left out. All this is done per client batch or per chunk, never per message.

A chunked message belongs to the range of its last part. Earlier parts may be before the range. They are
looked for there, step by step, among the entries that are still kept. A message that lacks a part where a
block is damaged counts as damaged, independent of the ranges that are read.
"""

from __future__ import annotations

import bisect
import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast._core import Columns, Entries, chunks_in, packed_entry
from holdfast.columns.files import EntryReader, topic_and_partition
from holdfast.columns.open_chunks import LOOK_BACK_BYTES, digest
from holdfast.errors import Corrupt, DataLoss, NotFound
from holdfast.ledger.files import RUN_ENTRIES
from holdfast.packing import SIZE_MAX, Unpackable, unpack

log = logging.getLogger("holdfast.pipeline.decoding")

_LOOK_BACK_ENTRIES = 16
"""How many entries are searched first: a beginning is mostly near. Later steps are larger."""
_LOOK_BACK_STEP = 4 << 20
PARTS_MAX = 1 << 18
"""How many parts of chunked messages are known at a time: four times those of the largest message."""


@dataclass(frozen=True)
class Wish:
    """Which columns and rows of the messages are wanted."""

    columns: list[str]
    permissive: bool = False
    publish_min_us: int | None = None
    publish_max_us: int | None = None
    keys: tuple[bytes, ...] | None = None
    whole: int | None = None
    """If entries from this position on were trimmed, a chunked message without its beginning is a loss
    (DataLoss). `None`: it is left out, with a warning."""

    def decoder(self, name: str) -> Columns:
        """Return a new decoder for a topic of this full name."""
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
        """Whether there is no filter."""
        return self.publish_min_us is None and self.publish_max_us is None and self.keys is None


class _Part(NamedTuple):
    """A part of a chunked message."""

    number: int
    of: int
    ordinal: int

    @property
    def last(self) -> bool:
        return self.number == self.of - 1

    @property
    def settles(self) -> bool:
        """Whether earlier parts of the message do not matter for what follows."""
        return self.number == 0 or self.last


class _Parts(dict[bytes, list[_Part]]):
    """Parts of chunked messages, by the digest of the uuid.

    Each list starts with the last part that settles what was before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.forgot = False
        """Whether parts were dropped because there were more than PARTS_MAX."""

    def note(self, uuid: bytes, part: _Part) -> None:
        """Add a part, in the order of positions; one that was sent again is ignored."""
        parts = self.pop(uuid, [])
        if part.settles:
            self.count -= len(parts)
            parts = []
        if not parts or part.number > parts[-1].number:
            parts.append(part)
            self.count += 1
        self[uuid] = parts
        while self.count > PARTS_MAX:
            self.count -= len(self.pop(next(iter(self))))
            self.forgot = True

    def put_before(self, uuid: bytes, earlier: list[_Part]) -> None:
        """Add parts from before the range, unless the known ones settle that."""
        known = self.get(uuid, [])
        if not known or not known[0].settles:
            self[uuid] = [*earlier, *(each for each in known if each.number > earlier[-1].number)]
            self.count += len(self[uuid]) - len(known)


class Decoding:
    """Reads one range of one topic as rows."""

    def __init__(self, topic: EntryReader, start: int, stop: int, wish: Wish) -> None:
        self._topic = topic
        self._start = start
        self._stop = stop
        self._wish = wish
        self._decoder = wish.decoder(topic.name)
        self._seen = _Parts()
        """Parts of chunked messages in the range."""
        self._before = _Parts()
        """Parts before the range, as far as was searched."""
        self._back_to = start
        """The position down to which was searched."""
        self._back_bytes = 0
        self._holes = array("q")
        """Positions of damaged blocks, in the range and before it, where a part may be missing."""
        self._left_out = array("q")
        """Entries of the range that were left out as damaged."""
        self.at = start
        """All entries before this one are decoded."""

    @property
    def damaged(self) -> int:
        """How many entries were left out."""
        return len(self._left_out)

    def damaged_below(self, ordinal: int) -> int:
        """Return how many entries before this one were left out."""
        return bisect.bisect_left(self._left_out, ordinal)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises Corrupt, NotFound like `TopicReader.run`."""
        while (at := self._topic.next(self.at, self._stop)) < self._stop:
            self.at = at
            try:
                run = self._topic.run(self.at, self._stop)
            except Corrupt as error:
                if self._decoder.full():
                    yield from self._rest()
                self._holes.append(self.at)
                self._leave_out(*self._topic.locate(self.at), self.at, str(error), error)
                self.at += 1
                continue
            except NotFound:
                yield from self._rest()
                raise
            yield from self._decode(run)
            self.at += len(run)
        self.at = max(self.at, self._stop)
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
        """Help the decoder with this entry; return whether it can continue with it."""
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
        self._leave_out(run.ledger, run.first_entry + at, ordinal, f"{place} is not a message: {words}")
        return False

    def _payload(self, run: Entries, at: int) -> Any:
        """Return the payload of the entry; `None` if it is not a message by itself."""
        compression, size, uuid, chunk, chunks, found = packed_entry(run, at)
        payload: bytes | bytearray | None = found
        if chunks > 1:
            payload = self._join(digest(uuid), chunk, chunks, run.first_ordinal + at, found)
        if payload is None or compression == 0:
            return payload
        return unpack(compression, size, payload)

    # -- chunks ----------------------------------------------------------------------------------------

    def _join(self, uuid: bytes, chunk: int, chunks: int, ordinal: int, payload: bytes) -> bytearray | None:
        """Return the whole message at its last part; otherwise, or without a part, `None`.

        Parts count in order. A first part starts the message anew. A part that was sent again is ignored,
        also the last one: that message has had its row.
        """
        this, parts = _Part(chunk, chunks, ordinal), self._seen.get(uuid, [])
        self._seen.note(uuid, this)
        if not this.last:
            return None
        if not parts or not parts[0].settles:
            parts = [*self._look_back(uuid), *parts]
        if not parts or not parts[0].settles:
            trimmed = not self._seen.forgot and self._back_to <= self._topic.plan()[0]
            self._beheaded(ordinal, trimmed, (self._back_to, parts[0].ordinal if parts else ordinal))
            return None
        if parts[0].last:
            return None  # sent again
        places, behind = list[int](), ordinal
        for each in parts:
            if each.number > len(places):  # one is missing
                behind = each.ordinal
                break
            if each.number == len(places):
                places.append(each.ordinal)
        if len(places) != chunks - 1:
            self._beheaded(ordinal, False, (places[-1], behind))
            return None
        return self._read_parts(places, ordinal, payload)

    def _read_parts(self, places: list[int], ordinal: int, last: bytes) -> bytearray | None:
        found = bytearray()  # one buffer: parts may be large
        for place in places:
            try:
                found += packed_entry(self._topic.run(place, place + 1), 0)[5]
            except NotFound:  # trimmed since it was seen
                self._beheaded(ordinal, True, (place, place))
                return None
            except Corrupt as error:
                raise Unpackable(f"its part at position {place} is damaged: {error}") from error
            if len(found) + len(last) > SIZE_MAX:
                raise Unpackable(f"its parts together have more than {SIZE_MAX} bytes, the limit")
        found += last
        return found

    def _beheaded(self, ordinal: int, trimmed: bool, between: tuple[int, int]) -> None:
        """Handle a message of which a part cannot be found, in this range.

        Raises:
            DataLoss: the part was trimmed, and `Wish.whole` says that this is a loss.
            Unpackable: a block where the part may have been is damaged.
        """
        words = f"{self._topic.name}, position {ordinal}: the beginning of this chunked message is missing"
        first, _ = self._topic.plan()
        if trimmed and self._wish.whole is not None and first > self._wish.whole:
            raise DataLoss(
                f"{words}: entries below {first} were trimmed; set failOnDataLoss=false to read without it"
            )
        at = bisect.bisect_left(self._holes, between[0])
        if at < len(self._holes) and self._holes[at] < between[1]:
            raise Unpackable(
                f"a part is missing, and may have been at position {self._holes[at]}, which is damaged"
            )
        log.warning("%s, and it is left out", words)

    def _look_back(self, uuid: bytes) -> list[_Part]:
        """Find the parts of a message before the range, no further back than needed."""
        first, _ = self._topic.plan()
        step = _LOOK_BACK_ENTRIES
        while self._back_to > first and self._back_bytes < LOOK_BACK_BYTES:
            if self._before.count > PARTS_MAX:
                break
            known = self._before.get(uuid)
            if known and known[0].settles:
                break
            before = self._back_bytes
            self._look_further(max(first, self._back_to - step))
            if self._back_bytes - before < _LOOK_BACK_STEP:
                step = min(2 * step, RUN_ENTRIES)
        return self._before.get(uuid, [])

    def _look_further(self, start: int) -> None:
        """Extend the search before the range down to this position."""
        found, holes = _Parts(), array("q")
        at = start
        while (at := self._topic.next(at, self._back_to)) < self._back_to:
            try:
                run = self._topic.run(at, self._back_to)
            except Corrupt:  # reported by the reader of that range; needed here for missing parts
                holes.append(at)
                at += 1
                continue
            except NotFound:
                at = max(at + 1, self._topic.plan()[0])
                continue
            for place, uuid, number, of in chunks_in(run):
                found.note(digest(uuid), _Part(number, of, run.first_ordinal + place))
            self._back_bytes += run.space
            at += len(run)
        for name, parts in found.items():
            self._before.put_before(name, parts)
        self._back_to = start
        if holes:
            self._holes = holes + self._holes

    # -- damage ----------------------------------------------------------------------------------------

    def _leave_out(
        self, ledger: int, entry: int, ordinal: int, words: str, cause: Exception | None = None
    ) -> None:
        if not self._wish.permissive:
            raise Corrupt(f"{words}; set mode=permissive to leave it out") from cause
        self._left_out.append(ordinal)
        if "corrupt" in self._wish.columns and self._wish.all_rows:
            self._decoder.corrupt(ledger, entry, ordinal, words)
