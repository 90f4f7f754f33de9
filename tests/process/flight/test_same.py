"""Compare reads by path and by URL at every edge: same result, or same error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql.types import StructType

from holdfast import Broker
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace, FileTopic, Place, TopicReader
from holdfast.columns.remote import RemotePlace, RemoteTopic
from holdfast.columns.schema import COLUMNS
from holdfast.errors import HoldfastError
from holdfast.ledger.files.table import table_path
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.stream import StreamReader, reach
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.flight_world import PREFIX

COUNT, LEDGER = 600, 100
FIRST = 2 * LEDGER
"""Of `trimmed`."""
ADMIN = f"/admin/v2/{PREFIX.replace('://', '/')}"
VICTIMS = ("by-path-fail", "by-url-fail", "by-path-go-on", "by-url-go-on")
"""Topics that are trimmed during a plan."""


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create topics of six ledgers: whole, trimmed, empty, and with a damaged table."""
    path = tmp_path_factory.mktemp("same") / "data"
    small: dict[str, Any] = {"reserve_bytes": 1 << 20, "journal_bytes": 1 << 20, "sync": "os"}
    with Broker.open(str(path), roll_entries=LEDGER, retention_s=0, **small) as broker:
        for name in ("whole", "trimmed", "empty", "damaged", "unnamed", "parts-partition-3", *VICTIMS):
            broker.admin.create_subscription(name, "s")
            with broker.producer(name) as producer:
                for number in range(COUNT // LEDGER):
                    producer.send_many([b"%d" % (number * LEDGER + i) for i in range(LEDGER)], key="k")
                    broker.admin.roll(name)
        for name, count in (("trimmed", FIRST), ("empty", COUNT)):
            broker.admin.skip(name, "s", count)
            broker.admin.trim(name)
    return path


@pytest.fixture(scope="module")
def server(edges: Path) -> Iterator[Served]:
    with served(edges, "--set", "broker.retention_s=0", http=True) as server:
        until(lambda: (FilePlace(str(edges)).open(f"{PREFIX}/empty").plan()) == (COUNT, COUNT))
        for name in (
            "damaged",
            "unnamed",
            "parts-partition-3",
        ):  # while it runs: at its start the broker mends them
            (edges / table_path(f"{PREFIX}/{name}")).write_bytes(b"")
        yield server


def outcome(ask: Callable[..., Any], *given: Any) -> Any:
    """The outcome: a result, or a kind of error."""
    try:
        return ask(*given)
    except HoldfastError as error:
        return type(error).__name__


def rows(topic: TopicReader, start: int, stop: int, **wish: Any) -> Any:
    """How far it came, what was found, and how it ended."""
    reading = topic.decoding(start, stop, Wish([*COLUMNS], **wish))
    found: list[Any] = []

    def read() -> str:
        for batch in reading.batches():
            found.extend(batch.to_pylist())
        return "the end"

    return outcome(read), reading.at, reading.damaged, found


RANGES = [
    (0, COUNT),
    (0, 1),
    (0, FIRST),
    (FIRST - 1, FIRST + 1),
    (FIRST, FIRST),
    (FIRST, COUNT),
    (FIRST + 5, FIRST + 4),
    (COUNT - 1, COUNT),
    (COUNT, COUNT),
]
BEYOND = [(0, COUNT + 1), (COUNT - 1, COUNT + 10), (COUNT + 5, COUNT + 10), (COUNT + 5, 1 << 61)]
TIMES = [0, -5, -(10**30), 10**30, 1 << 62, int(time.time() * 1000) - 3_600_000]
Question = Callable[[Place], Any]


def asked_of(name: str) -> dict[str, Question]:
    """List every request of a source: at the first position, at the end, and outside."""
    found: dict[str, Question] = {}

    def add(words: str, ask: Callable[..., Any], *given: Any, **more: Any) -> None:
        found[words] = lambda place: ask(place.open(f"{PREFIX}/{name}"), *given, **more)

    add("incarnation", lambda topic: topic.incarnation)
    add("plan", lambda topic: topic.plan())
    for moment in TIMES:
        add(f"time {moment}", lambda topic, moment: topic.at_time(moment), moment)
    for start, stop in RANGES + BEYOND:
        span = f"{start} to {stop}"
        add(f"weights {span}", lambda topic, *ends: topic.weights(*ends), start, stop)
        add(f"reach {span}", reach, start, stop, 1000)
    for start, stop in RANGES:
        span = f"{start} to {stop}"
        add(f"rows {span}", rows, start, stop)
        add(f"chunks {span}", lambda topic, *ends: topic.open_chunks(*ends, []), start, stop)
    many = (*(b"%06d" % i * 8 for i in range(20_000)), b"k")
    for keys in ((), (b"k",), (b"", b"x"), many, many[:-1]):
        add(f"rows with {len(keys)} keys", rows, FIRST, COUNT, keys=keys)
    return found


@pytest.mark.parametrize("name", ["whole", "trimmed", "empty", "damaged", "parts-partition-3", "none"])
def test_whatever_is_asked(name: str, server: Served, edges: Path) -> None:
    """I160: one list of edges, one answer."""
    near, far = FilePlace(str(edges)), RemotePlace(server.http_url, timeout_s=20.0)
    answers = {}
    for question, ask in asked_of(name).items():
        answers[question] = outcome(ask, near)
        assert outcome(ask, far) == answers[question], question
    expected = {"damaged": "Corrupt", "parts-partition-3": "Corrupt", "none": "NotFound"}.get(name)
    if expected is not None:
        assert all(each == expected for each in answers.values())
    if name == "trimmed":
        assert answers["plan"] == (FIRST, COUNT)
        assert answers[f"rows 0 to {COUNT}"] == ("NotFound", 0, 0, [])
        assert answers[f"rows {FIRST} to {COUNT}"][:2] == ("the end", COUNT)
        assert len(answers["rows with 20001 keys"][3]) == len(answers["rows with 1 keys"][3]) == COUNT - FIRST
        assert answers["rows with 20000 keys"][3] == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "whole"}, [(0, COUNT)]),
        ({"topic": "trimmed", "startingOffsets": '{"trimmed": {"0": 7}}'}, "DataLoss"),
        (
            {"topic": "trimmed", "startingOffsets": '{"trimmed": {"0": 7}}', "failOnDataLoss": "false"},
            [(FIRST, COUNT)],
        ),
        ({"topic": "whole", "endingOffsets": '{"whole": {"0": 601}}'}, "DataLoss"),
        (
            {"topic": "whole", "endingOffsets": '{"whole": {"0": 601}}', "failOnDataLoss": "false"},
            [(0, COUNT)],
        ),
        ({"topic": "empty"}, [(0, 0)]),
        ({"topics": "whole,damaged"}, "Corrupt"),
        ({"topic": "parts"}, "Corrupt"),
        ({"topicsPattern": "who.*"}, "Corrupt"),  # for all that it knows, `unnamed` may be one of those
        ({"topic": "none"}, "NotFound"),
        ({"topics": "trimmed,none"}, "NotFound"),
        ({"topic": "whole", "startingTimestamp": "9" * 30}, [(0, 0)]),
    ],
)
def test_plans_of_batches(options: dict[str, str], expected: Any, server: Served, edges: Path) -> None:
    """A damaged table stops readers that may need its topic; the error names a remedy."""
    for where in ({"path": str(edges)}, {"service.url": server.http_url}):
        reader = BatchReader(parse({**options, "minPartitions": "1", **where}, "source"), StructType())
        found = outcome(reader.partitions)
        if not isinstance(found, str):
            found = [(each.start, each.stop) for each in found]
        assert found == expected, where
    if expected == "Corrupt":
        with pytest.raises(HoldfastError, match=r"\.table .*start or restart the broker"):
            reader.partitions()


def truncate(server: Served, name: str) -> None:
    urlopen(Request(f"{server.http_url}{ADMIN}/{name}/truncate", method="DELETE"), timeout=60).close()


class Late:
    """Something happens before the first weights are asked for."""

    def __init__(self, weights: Callable[..., Any], happen: Callable[[], None]) -> None:
        self._weights = weights
        self._happen = happen
        self.done = False

    @property
    def weights(self) -> Callable[..., Any]:
        def ask(topic: Any, start: int, stop: int) -> Any:
            if not self.done:
                self.done = True
                self._happen()
            return self._weights(topic, start, stop)

        return ask


@pytest.mark.parametrize("go_on", [False, True])
def test_trimmed_between_plan_and_weights(
    go_on: bool, server: Served, edges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data loss, as failOnDataLoss says, whichever way it is read."""
    places: list[tuple[str, Any, dict[str, str]]] = [
        ("by-path", FileTopic, {"path": str(edges)}),
        ("by-url", RemoteTopic, {"service.url": server.http_url}),
    ]
    for word, kind, where in places:
        name = f"{word}-{'go-on' if go_on else 'fail'}"
        late = Late(kind.weights, lambda name=name: truncate(server, name))  # type: ignore[misc]
        monkeypatch.setattr(kind, "weights", late.weights)
        given = {"topic": name, "failOnDataLoss": str(not go_on).lower(), "timeout": "20s", **where}
        reader = BatchReader(parse(given, "source"), StructType().add("position", "long"))
        read = outcome(
            lambda reader: [each for split in reader.partitions() for each in reader.read(split)], reader
        )
        assert read == ([] if go_on else "DataLoss"), word
        assert late.done


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize(
    "change", [{}, {"position": COUNT + 50}, {"position": 7, "from": 3}, {"incarnation": "00" * 16}]
)
def test_streams_with_offsets_that_are_not_there(
    change: dict[str, Any], fail: str, server: Served, edges: Path
) -> None:
    """Ranges below the first, above the end, or of another topic: same offsets, tasks, errors."""

    def go(where: dict[str, str]) -> Any:
        given = {"topic": "trimmed", "startingOffsets": "earliest", "failOnDataLoss": fail, **where}
        options = parse({**given, "maxBytesPerTrigger": "1k"}, "source")
        reader = StreamReader(options, StructType().add("value", "binary"))
        begun = reader.initialOffset()
        [[told]] = [parts.values() for parts in begun.values()]
        told.update(change)
        ended = reader.latestOffset(begun, reader.getDefaultReadLimit())
        tasks = list(reader.partitions(begun, ended))
        return ended, tasks, [batch.to_pylist() for each in tasks for batch in reader.read(each)]

    assert outcome(go, {"path": str(edges)}) == outcome(go, {"service.url": server.http_url})
