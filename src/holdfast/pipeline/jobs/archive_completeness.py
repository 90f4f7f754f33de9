"""Check that an archive has a row for each position that has a message.

Reading back shows that the archive has the rows that Spark was given. Only the topic shows whether Spark was
given all: positions without a row are looked up there, without Spark. These positions have no row: chunks
before the last one of a message, chunks of an incomplete message, a batch without messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns import topic_and_partition
from holdfast.errors import Corrupt, NotFound
from holdfast.pipeline.jobs.archive_directory import Range

if TYPE_CHECKING:
    from holdfast.pipeline.jobs.inputs import Topics

BUCKET = 32_768
"""Positions in one bitmap, the size of Spark's bitmaps."""
NEAR = 4096
"""Gaps at most this far apart are looked up together, because each lookup has a fixed cost."""
SPAN = 1 << 20
"""Most positions in one lookup."""

Gap = tuple[int, int]
"""Positions from the first up to the second, which is excluded."""


@dataclass(frozen=True)
class Span:
    """The archived rows of a topic or partition, summed up."""

    rows: int = 0
    entries: int = 0
    """Positions with a row; fewer if the first message of a batch was left out."""
    first: int = 0
    last: int = 0
    sum: int = 0
    """Sum of these positions. With `entries` it shows that no position replaces another."""

    def fills(self, reach: Range) -> bool:
        """Tell whether each position of the range has its row."""
        count = reach.stop - reach.start
        return self.entries == count and 2 * self.sum == count * (reach.start + reach.stop - 1)

    def __or__(self, other: Span) -> Span:
        return Span(
            self.rows + other.rows,
            self.entries + other.entries,
            min(self.first, other.first),
            max(self.last, other.last),
            self.sum + other.sum,
        )


Spans = dict[tuple[str, int], Span]
"""By topic and partition."""


def require_in_range(spans: Spans, ranges: Mapping[str, Range]) -> None:
    """Check that all rows are within the planned positions."""
    reaches = {topic_and_partition(name): reach for name, reach in ranges.items()}
    for (topic, partition), span in spans.items():
        reach = reaches.get((topic, partition), Range("", 0, 0))
        if not reach.start <= span.first <= span.last < reach.stop:
            raise Corrupt(
                f"{topic}, partition {partition}, returned positions {span.first} to {span.last}; "
                f"{reach.start} to {reach.stop - 1} were asked for; nothing was added: archive again"
            )
        if span.entries > reach.stop - reach.start:
            raise Corrupt(
                f"{topic}, partition {partition}, has {span.entries} entries at the positions {reach.start} "
                f"to {reach.stop - 1}: some were read twice; nothing was added: archive again"
            )


def require_all(known: Topics, rows: DataFrame | None, spans: Spans, ranges: Mapping[str, Range]) -> None:
    """Check that each position has its row, or no message in the topic (I187).

    Raises:
        Corrupt: a message of the topic has no row, or two.
    """
    short = {
        name: reach
        for name, reach in ranges.items()
        if not spans.get(topic_and_partition(name), Span()).fills(reach)
    }
    bits = bitmaps(rows) if short else {}
    for name, reach in short.items():
        place = topic_and_partition(name)
        none = require_no_row(known, name, gaps(reach.start, reach.stop, bits.get(place, {})))
        if spans.get(place, Span()).entries > reach.stop - reach.start - none:
            raise Corrupt(f"{name}: some positions were read twice; nothing was added: archive again")


def bitmaps(rows: DataFrame | None) -> dict[tuple[str, int], dict[int, bytes]]:
    """Collect the positions with a row as bitmaps, by topic and partition, then by bucket."""
    found: dict[tuple[str, int], dict[int, bytes]] = {}
    if rows is not None:
        bit = F.bitmap_construct_agg(F.col("position") % F.lit(BUCKET)).alias("bits")
        bucket = F.expr(f"position DIV {BUCKET}").alias("bucket")
        for row in rows.groupBy("topic", "partition", bucket).agg(bit).toLocalIterator():
            found.setdefault((row["topic"], row["partition"]), {})[row["bucket"]] = bytes(row["bits"])
    return found


def gaps(start: int, stop: int, bits: Mapping[int, bytes]) -> Iterator[Gap]:
    """Find the positions that the bitmaps lack in a range; gaps end with their bucket."""
    for bucket in range(start // BUCKET, -(-stop // BUCKET)):
        base = bucket * BUCKET
        low, high = max(start, base), min(stop, base + BUCKET)
        packed = np.frombuffer(bits.get(bucket, bytes(BUCKET // 8)), np.uint8)
        there = np.unpackbits(packed, bitorder="little")[low - base : high - base].astype(np.int8)
        edges = low + np.flatnonzero(np.diff(there, prepend=1, append=1))
        yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def spans(found: Iterable[Gap]) -> Iterator[list[Gap]]:
    """Group gaps that are near each other."""
    together: list[Gap] = []
    for gap in found:
        if together and (gap[0] - together[-1][1] > NEAR or gap[1] - together[0][0] > SPAN):
            yield together
            together = []
        together.append(gap)
    if together:
        yield together


def require_no_row(known: Topics, name: str, found: Iterable[Gap]) -> int:
    """Check that the topic has no row at these positions, and count them.

    Raises:
        Corrupt: the topic has a row there, or has trimmed them since.
    """
    count = 0
    for together in spans(found):
        start, stop = together[0][0], together[-1][1]
        missing = np.zeros(stop - start, bool)
        for low, high in together:
            missing[low - start : high - start] = True
            count += high - low
        try:
            for positions in known.positions(name, start, stop):
                places = np.asarray(positions, np.int64)
                if (there := places[missing[places - start]]).size:
                    raise Corrupt(
                        f"{name}, position {there[0]}: the topic has a message there, and Spark did not read "
                        "it; nothing was added: archive again"
                    )
        except NotFound as error:
            raise Corrupt(f"{error}; nothing was added: archive again") from error
    return count
