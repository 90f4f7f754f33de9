"""From entries to Arrow: the core decodes, and asks here for what it cannot know.

Compressed payloads are opened, the parts of a chunked message are found and joined, and what is damaged is
refused or left out. Everything is per client batch or per chunk; nothing here is called for each message.

A chunked message belongs to whoever reads its last part. The others may stand before the range, and are
looked for there, step by step, in what is still kept. One that lacks a part where a block is damaged is
damaged itself, wherever ranges begin.
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
from holdfast.columns.packing import SIZE_MAX, Unpackable, unpack
from holdfast.errors import Corrupt, DataLoss, NotFound
from holdfast.ledger.files.table import RUN_ENTRIES

log = logging.getLogger("holdfast.pipeline.decoding")

_LOOK_BACK_ENTRIES = 16
"""So many at first: a beginning is mostly near; then more, while they are small."""
_LOOK_BACK_STEP = 4 << 20
PARTS_MAX = 1 << 18
"""Of chunked messages, known at a time. One message of SIZE_MAX in parts of 4 KiB is a quarter of it."""


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


class _Part(NamedTuple):
    """Of a chunked message."""

    number: int
    of: int
    ordinal: int

    @property
    def last(self) -> bool:
        return self.number == self.of - 1

    @property
    def settles(self) -> bool:
        """Whatever of the message stands before this one does not matter for what stands behind."""
        return self.number == 0 or self.last


class _Parts(dict[bytes, list[_Part]]):
    """By the digest of a message's uuid: its parts from the last one on that settles what was before."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.forgot = False
        """Of more than PARTS_MAX, those of the messages that nothing was added to for longest."""

    def note(self, uuid: bytes, part: _Part) -> None:
        """One more, in the order of positions. One that is not above those before it is there already."""
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
        """What stands before those that are known, unless that does not matter."""
        known = self.get(uuid, [])
        if not known or not known[0].settles:
            self[uuid] = [*earlier, *(each for each in known if each.number > earlier[-1].number)]
            self.count += len(self[uuid]) - len(known)


class Decoding:
    """One range of one topic, while it is read."""

    def __init__(self, topic: EntryReader, start: int, stop: int, wish: Wish) -> None:
        self._topic = topic
        self._start = start
        self._stop = stop
        self._wish = wish
        self._decoder = wish.decoder(topic.name)
        self._seen = _Parts()
        """Parts of chunked messages in the range."""
        self._before = _Parts()
        """The same before the range, as far as was looked back."""
        self._back_to = start
        """So far."""
        self._back_bytes = 0
        self._holes = array("q")
        """Where blocks are damaged, in the range and before it: a part of a chunked message may be there."""
        self._left_out = array("q")
        """Entries of the range without rows, for what is wrong with them."""
        self.at = start
        """All before it was decoded."""

    @property
    def damaged(self) -> int:
        """Entries that were left out."""
        return len(self._left_out)

    def damaged_below(self, ordinal: int) -> int:
        """Those of them before this one."""
        return bisect.bisect_left(self._left_out, ordinal)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises Corrupt, NotFound as `TopicReader.run` does."""
        while self.at < self._stop:
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
        payload: bytes | bytearray | None = found
        if chunks > 1:
            payload = self._join(digest(uuid), chunk, chunks, run.first_ordinal + at, found)
        if payload is None or compression == 0:
            return payload
        return unpack(compression, size, payload)

    # -- chunks ----------------------------------------------------------------------------------------

    def _join(self, uuid: bytes, chunk: int, chunks: int, ordinal: int, payload: bytes) -> bytearray | None:
        """The whole message, with its last part; None before, and if it cannot be.

        Parts count in order. A message that begins again begins anew; a part that was sent again is one too
        many, also the last one: that message has had its row.
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
        found = bytearray()  # not each part and then all of them: they may be large
        for place in places:
            try:
                found += packed_entry(self._topic.run(place, place + 1), 0)[5]
            except NotFound:  # trimmed since it was seen: this message is hit, no other
                self._beheaded(ordinal, True, (place, place))
                return None
            except Corrupt as error:
                raise Unpackable(f"its part at position {place} is damaged: {error}") from error
            if len(found) + len(last) > SIZE_MAX:
                raise Unpackable(f"its parts together have more than {SIZE_MAX} bytes, the most that is read")
        found += last
        return found

    def _beheaded(self, ordinal: int, trimmed: bool, between: tuple[int, int]) -> None:
        """A message of which a part is not to be found, in this range.

        Raises:
            DataLoss: it was trimmed, and whoever reads had a right to it.
            Unpackable: something is damaged there.
        """
        words = f"{self._topic.name}, position {ordinal}: the beginning of this chunked message is gone"
        first, _ = self._topic.plan()
        if trimmed and self._wish.whole is not None and first > self._wish.whole:
            raise DataLoss(
                f"{words}: entries below {first} were trimmed; set failOnDataLoss=false to go on without it"
            )
        at = bisect.bisect_left(self._holes, between[0])
        if at < len(self._holes) and self._holes[at] < between[1]:
            raise Unpackable(
                f"a part of it is missing, and position {self._holes[at]}, where it may have been, is damaged"
            )
        log.warning("%s, and it is left out", words)

    def _look_back(self, uuid: bytes) -> list[_Part]:
        """What of this message stands before the range; looks no further back than to where that is known."""
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
        """From what is known of the entries before the range to this one."""
        found, holes = _Parts(), array("q")
        at = start
        while at < self._back_to:
            try:
                run = self._topic.run(at, self._back_to)
            except Corrupt:  # whoever reads that range says so; here it matters where a part is missing
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
            raise Corrupt(f"{words}; mode=permissive reads on without it") from cause
        self._left_out.append(ordinal)
        if "corrupt" in self._wish.columns and self._wish.all_rows:
            self._decoder.corrupt(ledger, entry, ordinal, words)
