"""Compare random streams, read by the source and by the official client, row by row.

The official client publishes to three topics of a served broker with small ledgers: single messages, batches
and chunks. They have all compressions, null values, keys, properties and event times. In between it
acknowledges, the broker trims, and the subscription of a stream is reset: to a message, to the beginning, to
a time.

The source reads meanwhile, as a stream with random limits that is stopped and started again, and as batches
of random ranges. Each column of each row is compared with the rows of the client.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType, StructType

from holdfast.client import Client
from holdfast.columns.schema import COLUMNS
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.stream import StreamReader, begins, flat
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.served import Served, served
from tests.kit.spark.source_client import Official

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "persistent://public/default/"
TOPICS = tuple(PREFIX + name for name in ("orders", "parts-partition-0", "parts-partition-1"))
SUBSCRIPTION = "spark"
CHUNK_BYTES = 65_536
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
ALWAYS = (
    "messages",
    "in batches",
    "roll-overs",
    "resets",
    "restarts",
    "batches of the stream",
    "rows compared",
)
"""Events of every storm, also of a short one."""
HAPPENS = (*ALWAYS, "in chunks", "null values", "trims", "resets obeyed")
"""Counts of a storm; a long one has some of each."""

Row = dict[str, Any]
Batches = list[tuple[dict[str, Any], list[Row]]]
"""Of a stream: the offset where each batch ended, and its rows."""


def source_row(row: Row) -> Row:
    """As `kit/spark/source_client.py` shows one, and what a client does not show."""
    event, value = row["eventTime"], row["value"]
    return {
        "id": [row["messageId"][name] for name in ("ledger", "entry", "batchIndex")],
        "size": len(value or b""),
        "digest": hashlib.sha256(value or b"").hexdigest(),
        "null": value is None,
        "key": base64.b64encode(row["key"] or b"").decode(),
        "properties": dict(row["properties"]),
        "published": (row["publishTime"].astimezone(UTC) - EPOCH) // MS,
        "event": 0 if event is None else (event.astimezone(UTC) - EPOCH) // MS,
        "producer": row["producer"],
        "sequence": row["sequenceId"],
        "position": row["position"],
        "topic": row["topic"],
        "partition": row["partition"],
    }


# -- who reads -----------------------------------------------------------------------------------------


class Reading(Protocol):
    """The source, with Spark or without."""

    def rows(self, given: dict[str, str]) -> list[Row]: ...

    def start(self, given: dict[str, str]) -> None: ...

    def drain(self) -> None: ...

    def stop(self) -> None: ...

    def batches(self) -> Batches: ...


class Plain:
    """Without Spark: the calls that Spark makes, each batch read twice, as after a crash."""

    def __init__(self) -> None:
        self._schema = StructType()
        for name in COLUMNS:
            self._schema.add(name, StringType())  # the names are all that counts
        self._reader: StreamReader | None = None
        self._offset: Any = None
        self._batches: Batches = []

    def rows(self, given: dict[str, str]) -> list[Row]:
        reader = BatchReader(parse(given, "source"), self._schema)
        return _pieces(reader, reader.partitions())

    def start(self, given: dict[str, str]) -> None:
        self._reader = StreamReader(parse(given, "source"), self._schema)
        self._offset = self._offset or _json(self._reader.initialOffset())

    def drain(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """One batch; False: there was nothing to read."""
        reader = self._reader
        assert reader is not None
        end = _json(reader.latestOffset(self._offset, reader.getDefaultReadLimit()))
        if end == self._offset:
            return False
        first, second = (_pieces(reader, reader.partitions(self._offset, end)) for _ in range(2))
        assert first == second, "asked again, it is another batch"
        self._batches.append((end, first))
        self._offset = end
        return True

    def stop(self) -> None:
        assert self._reader is not None
        self._reader.stop()

    def batches(self) -> Batches:
        return self._batches


class WithSpark:
    """With Spark: the stream runs all the time, while everything else happens."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._found: dict[int, list[Row]] = {}
        self._query: Any = None
        self._given: dict[str, str] = {}
        self.wrong: list[str] = []

    def rows(self, given: dict[str, str]) -> list[Row]:
        found = self._spark.read.format("holdfast").options(**given).load().collect()
        return [source_row(row.asDict(recursive=True)) for row in found]

    def start(self, given: dict[str, str]) -> None:
        self._given = given
        frame = self._spark.readStream.format("holdfast").options(**given).load()

        def take(rows: Any, number: int) -> None:
            found = [source_row(row.asDict(recursive=True)) for row in rows.collect()]
            if self._found.setdefault(number, found) != found:
                self.wrong.append(f"batch {number} is another one when it is asked for again")

        to = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self._folder))
        self._query = to.trigger(processingTime="0 seconds").start()

    def drain(self) -> None:
        """Retry, because Spark gives its Python processes only ten seconds to start."""
        for left in reversed(range(5)):
            try:
                self._query.processAllAvailable()
                return
            except StreamingQueryException as error:
                slow = ("worker failed to connect back", "CANNOT_OPEN_SOCKET")
                if not left or not any(words in str(error) for words in slow):
                    raise
                self.start(self._given)

    def stop(self) -> None:
        self.drain()  # Spark's own handling of a callback that was interrupted overflows its stack
        self._query.stop()
        assert not self.wrong, self.wrong

    def batches(self) -> Batches:
        numbers = sorted(
            int(each.name) for each in (self._folder / "commits").iterdir() if each.name.isdigit()
        )
        assert numbers == list(range(len(numbers)))
        logged = [(self._folder / "offsets" / str(number)).read_text() for number in numbers]
        return [(json.loads(text.splitlines()[-1]), self._found[n]) for n, text in enumerate(logged)]


def spark_reading(folder: Path) -> WithSpark:
    """With a session of its own, for programs."""
    from holdfast.pipeline import session
    from tests.kit.spark.session import SETTINGS

    return WithSpark(session("storm", master="local[2]", settings=SETTINGS), folder / "checkpoint")


def _pieces(reader: Any, splits: Any) -> list[Row]:
    return [source_row(row) for each in splits for batch in reader.read(each) for row in batch.to_pylist()]


def _json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


# -- what there is to read -----------------------------------------------------------------------------


@dataclass
class Book:
    """The rows that the official client read of a topic, in order, and their properties."""

    topic: str
    rows: list[Row] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """When a round of publishing was over, in ms, and the position behind it."""
    firsts: dict[int, int] = field(default_factory=dict)
    """Of each ledger, the position of its first entry."""
    resets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By reset number: the lowest and the highest position where the first batch under it may begin."""
    begins: dict[tuple[int, ...], int] = field(default_factory=dict)
    """By id: the position of a message's first chunk, or its own."""
    let_go: int = 0
    """Number of rows that the keeper acknowledged."""
    trimmed: int = 0
    """All below is gone."""

    @property
    def partition(self) -> int:
        return int(self.topic.partition("-partition-")[2] or 0)

    def complete(self, row: Row, sequence: int) -> Row:
        """With what the client does not show; where its first chunk stands is kept aside."""
        told = pb.MessageIdData.FromString(base64.b64decode(row["serialized"]))
        first = told.first_chunk_message_id if told.HasField("first_chunk_message_id") else told
        self.begins[tuple(row["id"])] = self.firsts[first.ledgerId] + first.entryId
        row = {name: value for name, value in row.items() if name != "serialized"}
        at = self.firsts[row["id"][0]] + row["id"][1]
        topic = self.topic.partition("-partition-")[0]
        return {**row, "sequence": sequence, "position": at, "topic": topic, "partition": self.partition}

    def begin(self, row: Row) -> int:
        """Where its first chunk stands."""
        return self.begins[tuple(row["id"])]

    def between(self, start: int, stop: int) -> list[Row]:
        return [row for row in self.rows if start <= row["position"] < stop]


@dataclass
class Account:
    """The actions of a storm, and its faults."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))

    def require_sound(self, happened: tuple[str, ...] = HAPPENS) -> None:
        """Nothing is wrong, and what should have happened did."""
        assert not self.faults, self.faults[:5]
        missing = [name for name in happened if not self.counts[name]]
        assert not missing, f"{missing} did not happen: {self.words()}"


class Storm:
    """One server, the client, the source, and what the dice say."""

    def __init__(
        self, server: Served, data: Path, client: Official, reading: Reading, seed: int, by: str
    ) -> None:
        self.server, self.official, self.reading = server, client, reading
        self.seed, self.chance = seed, random.Random(seed)
        near = {"path": str(data)}
        self.batch_place = near if by == "path" else {"service.url": server.http_url}
        self.stream_place = self.batch_place | ({"service.url": server.url} if by == "path" else {})
        self.books = {topic: Book(topic) for topic in TOPICS}
        self.broker = Client(server.url)
        self.account = Account()
        self.published = 0

    def run(self, rounds: int, messages: int) -> Account:
        self.server.set_partitions("parts", 2)
        for book in self.books.values():
            self.official.ask("subscribe", book.topic, SUBSCRIPTION)
            at = self.progress(book)
            book.resets[at.reset_number] = (0, 0)
        self.publish(messages)
        self.start()
        for number in range(rounds):
            self.publish(messages)
            self.read_batches()
            for book in self.books.values():
                self.chance.choice((self.trim, self.reset, self.trim_and_reset, self.leave))(book)
            if isinstance(self.reading, Plain):
                for _ in range(self.chance.randrange(4)):
                    self.reading.step()  # the next round finds it in the middle
            if number == rounds // 2:
                self.let_go(self.books[TOPICS[0]])
                self.reset(self.books[TOPICS[1]])
            if number == rounds // 2 or self.chance.random() < 0.5:
                self.reading.stop()
                self.start()
                self.account.counts["restarts"] += 1
        self.publish(messages)
        self.read_batches()
        self.reading.drain()
        self.reading.stop()
        self.judge_stream()
        return self.account

    # -- what happens ----------------------------------------------------------------------------------

    def start(self) -> None:
        """The stream, with other limits each time."""
        given = {**self.stream_place, "topicsPattern": "orders|parts", "startingOffsets": "earliest"}
        given |= {"predefinedSubscription": SUBSCRIPTION}
        kinds = self.chance.randrange(4)
        if kinds & 1:
            given["maxOffsetsPerTrigger"] = str(self.chance.choice((40, 150, 300)))
        if kinds & 2:
            given["maxBytesPerTrigger"] = str(self.chance.choice((300_000, 1_000_000)))
        if self.chance.random() < 0.5:
            given["minPartitions"] = str(self.chance.randrange(1, 9))
        self.reading.start(given)

    def publish(self, messages: int) -> None:
        """The source reads meanwhile, if it is one that does."""
        for book in self.books.values():
            self.published += 1
            told = self.official.ask("publish", book.topic, self.seed * 1000 + self.published, messages)
            wrong = [each for each in told if each[2] != "Result.Ok"]
            assert not wrong, wrong
            new = self.official.ask("follow", book.topic)
            self.number_ledgers(book)
            sequences = {tuple(place): sequence for place, sequence, _ in told}
            assert {tuple(row["id"]) for row in new} == sequences.keys(), "the client itself reads other ids"
            new = [book.complete(row, sequences[tuple(row["id"])]) for row in new]
            book.rows += new
            book.ends.append((time.time_ns() // 1_000_000, self.progress(book).visible))
            self.account.counts["messages"] += len(new)
            self.account.counts["in chunks"] += sum(book.begin(row) < row["position"] for row in new)
            self.account.counts["in batches"] += sum(row["id"][2] >= 0 for row in new)
            self.account.counts["null values"] += sum(row["null"] for row in new)

    def number_ledgers(self, book: Book) -> None:
        found = [
            (each["ledgerId"], each["entries"]) for each in self.http("GET", book, "internalStats")["ledgers"]
        ]
        if not book.firsts:
            book.firsts[found[0][0]] = 0
        for (ledger, entries), (following, _) in pairwise(found):
            at = book.firsts[ledger] + entries
            self.account.counts["roll-overs"] += following not in book.firsts
            assert book.firsts.setdefault(following, at) == at

    def http(self, method: str, book: Book, what: str) -> Any:
        place = book.topic.replace("persistent://", "persistent/")
        request = urllib.request.Request(f"{self.server.http_url}/admin/v2/{place}/{what}", method=method)
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return json.loads(answer.read() or "null")

    def progress(self, book: Book) -> Any:
        return self.broker.progress(book.topic, SUBSCRIPTION)

    def leave(self, book: Book) -> None:
        """Nothing happens."""

    def trim(self, book: Book) -> None:
        """The keeper acknowledges some more; what the stream is behind, too, goes."""
        count = self.chance.randrange(len(book.rows) - book.let_go)
        self.official.ask("keep", book.topic, count)
        book.let_go += count
        self.http("POST", book, "trim")
        first = self.progress(book).first
        self.account.counts["trims"] += first > book.trimmed
        book.trimmed = first

    def let_go(self, book: Book) -> None:
        """All that is there is read, the broker is told so, and it is trimmed."""
        self.reading.drain()
        self.until_told(book)
        count = len(book.rows) - book.let_go - 1  # with the last one, the newest ledger stays known
        self.official.ask("keep", book.topic, count)
        book.let_go += count
        self.trim(book)

    def until_told(self, book: Book) -> None:
        """Check that the subscription follows the stream, also while the stream is idle."""
        end = time.monotonic() + 60.0
        while (at := self.progress(book)).acked_to < at.visible:
            assert time.monotonic() < end, f"the stream does not tell that it is done: {at}"
            self.reading.drain()

    def trim_and_reset(self, book: Book) -> None:
        self.trim(book)
        self.reset(book)

    def reset(self, book: Book) -> None:
        """Check where the next batch begins, from the rows of the client; by time, about."""
        number = self.chance.randrange(-1, len(book.rows))
        row, time_ms = book.rows[max(0, number)], 0
        low = high = 0 if number < 0 else row["position"]
        if number >= 0:
            low = book.begin(row)  # of one in chunks; the client goes to the first of them
        if self.chance.random() < 0.3:
            time_ms = row["published"]
            low = max((position for end, position in book.ends if end < time_ms), default=0)
            high = next(each["position"] for each in book.rows if each["published"] >= time_ms)
        if isinstance(self.reading, WithSpark) and high > self.progress(book).acked_to:
            self.reading.drain()  # a reset forward lets the broker trim what a batch under way needs
        self.official.ask("seek", book.topic, SUBSCRIPTION, number, time_ms)
        at = self.progress(book)
        book.resets[at.reset_number] = (max(at.first, low), max(at.first, high))
        self.account.counts["resets"] += 1

    # -- what must come of it --------------------------------------------------------------------------

    def read_batches(self) -> None:
        """Compare all entries and a random range with the client. With Spark, one of both."""
        choices = [(name, whole) for name in ("orders", "parts") for whole in (True, False)]
        for name, whole in choices if isinstance(self.reading, Plain) else [self.chance.choice(choices)]:
            books = [book for topic, book in self.books.items() if topic.startswith(PREFIX + name)]
            wanted = {book.topic: self.read_now(book) for book in books}
            given = {**self.batch_place, "topic": name, "minPartitions": str(self.chance.randrange(1, 20))}
            given["failOnDataLoss"] = "false"  # what the stream is behind is trimmed meanwhile
            ranges = {book.topic: self.some(book) for book in books}
            if not whole:
                for at, option in enumerate(("startingOffsets", "endingOffsets")):
                    told = {book.partition: ranges[book.topic][at] for book in books}
                    given[option] = json.dumps({name: told})
                wanted = {
                    topic: [row for row in rows if ranges[topic][0] <= row["position"] < ranges[topic][1]]
                    for topic, rows in wanted.items()
                }
            found = self.reading.rows(given)
            since = {book.topic: self.progress(book).first for book in books}
            self.compare_all(f"all of {name}" if whole else f"{ranges}", wanted, found, since)

    def read_now(self, book: Book) -> list[Row]:
        known = {tuple(row["id"]): row["sequence"] for row in book.rows}
        found = self.official.ask("read", book.topic)
        return [book.complete(row, known[tuple(row["id"])]) for row in found]

    def some(self, book: Book) -> tuple[int, int]:
        at = self.progress(book)
        start = self.chance.randrange(at.first, at.visible + 1)
        return start, self.chance.randrange(start, at.visible + 1)

    def judge_stream(self) -> None:
        """Check that batches follow each other from the target of each reset to the end."""
        before: dict[str, Any] = {}
        since = dict.fromkeys(self.books, 0)
        for number, (offset, rows) in enumerate(self.reading.batches()):
            self.account.counts["batches of the stream"] += 1
            ended = flat(offset)
            wanted = {}
            for topic, end in ended.items():
                book, start = self.books[topic], begins(topic, before, end)
                if topic not in before or before[topic]["reset"] != end["reset"]:
                    low, high = book.resets.get(end["reset"], (-1, -1))
                    if not low <= start <= high:
                        self.fault(
                            f"batch {number} of {topic} begins at {start}, not in {low} to {high}: {end}"
                        )
                    self.account.counts["resets obeyed"] += topic in before
                    since[topic] = start
                wanted[topic] = book.between(start, end["position"])
            self.compare_all(f"batch {number}", wanted, rows, since)
            before = ended
        for topic, book in self.books.items():
            at, end = self.progress(book), before[topic]
            if (end["position"], end["reset"]) != (at.visible, at.reset_number):
                self.fault(f"{topic} was read up to {end}, and is at {at}")
            if at.acked_to > at.visible:
                self.fault(f"{topic}: the subscription is at {at}")

    def compare_all(
        self, what: str, wanted: dict[str, list[Row]], found: list[Row], since: dict[str, int] | None = None
    ) -> None:
        """Each topic by itself: between topics there is no order."""
        by_topic: dict[str, list[Row]] = {topic: [] for topic in wanted}
        for row in found:
            full = (
                row["topic"] if row["topic"] in by_topic else f"{row['topic']}-partition-{row['partition']}"
            )
            by_topic[full].append(row)
        for topic, rows in by_topic.items():
            self.account.counts["rows compared"] += len(rows)
            began = (since or {}).get(topic, 0)
            self.compare(f"{what} of {topic}", self.books[topic], wanted[topic], rows, began)

    def compare(self, what: str, book: Book, wanted: list[Row], found: list[Row], since: int) -> None:
        """Allow missing rows before `since`: they, or their first chunks, may be trimmed."""
        there = {tuple(row["id"]) for row in found}
        cut = [
            row for row in wanted if tuple(row["id"]) not in there and book.begins[tuple(row["id"])] < since
        ]
        self.account.counts["trimmed meanwhile"] += len(cut)
        wanted = [row for row in wanted if row not in cut]
        if wanted == found:
            return
        first = next((i for i, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), -1)
        pair = (wanted[first], found[first]) if first >= 0 else ("", (wanted or found)[-1])
        self.fault(f"seed {self.seed}, {what}: {len(found)} rows, not {len(wanted)}; row {first}: {pair}")

    def fault(self, words: str) -> None:
        self.account.faults.append(words)


def run(
    folder: Path,
    seed: int,
    by: str,
    reading: Reading,
    rounds: int,
    messages: int,
    then: Callable[[Storm], None] | None = None,
) -> Account:
    """Run a storm on a server; `then` checks the server before it stops."""
    chance = random.Random(seed)
    settings = {
        "limits.message_bytes": CHUNK_BYTES,
        "broker.roll_entries": chance.choice((8, 20, 30)),
        "broker.housekeeping_s": chance.choice((0.05, 3600)),
    }
    given = [each for key, value in settings.items() for each in ("--set", f"{key}={value}")]
    with served(folder / "data", *given, http=True) as server, Official(server.url) as client:
        storm = Storm(server, folder / "data", client, reading, seed, by)
        account = storm.run(rounds, messages)
        if then is not None:
            then(storm)
        storm.broker.close()
        return account


def plan(by: str, spark: bool) -> Callable[[Path, int, int, int], Account]:
    def storm(folder: Path, seed: int, rounds: int, messages: int) -> Account:
        return run(folder, seed, by, spark_reading(folder) if spark else Plain(), rounds, messages)

    return storm


PLANS = {
    f"{by}, spark" if spark else by: plan(by, spark) for spark in (False, True) for by in ("path", "url")
}
"""By folder, seed, rounds and messages of each round."""
