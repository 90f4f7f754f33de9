"""Test options and the user's schemas: a wrong or contradictory one is an error."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.columns.files import FilePlace
from holdfast.errors import BadConfiguration, NotFound
from holdfast.pipeline.options import OPTIONS, declared, parse, table
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.format import HoldfastSource
from tests.kit import ROOT
from tests.kit.pipeline.streams import ORDERS, Stream
from tests.kit.spark.filled import data as data
from tests.kit.spark.filled import fill

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def columns(*names: str) -> StructType:
    from pyspark.sql.types import BinaryType, LongType, StructType

    made = StructType()
    for name in names or ("value", "position"):
        made.add(name, LongType() if name == "position" else BinaryType())
    return made


def source(data: Path | str, **options: Any) -> HoldfastSource:
    return HoldfastSource({"path": str(data), "topic": "orders", **options})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"starting_offsets": "latest"}, r"did you mean startingOffsets\? It has: .*endingOffsets"),
        ({"startingOffsets": "middle"}, "earliest, latest, or JSON"),
        ({"startingOffsets": '{"orders": {"0": "x"}}'}, "earliest, latest, or JSON"),
        ({"failOnDataLoss": "maybe"}, "takes true or false"),
        ({"minPartitions": "0"}, "a whole number of 1 or more"),
        ({"maxBytesPerTrigger": "much"}, "a number of bytes"),
        ({"maxTriggerDelay": "5"}, "a time with its unit"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"topicsPattern": "["}, "a regular expression"),
        ({"mode": "lenient"}, "failfast or permissive"),
        ({"path": " "}, "a text that is not empty"),
        ({"path": "file:///srv/data"}, "a directory of this machine such as /srv/holdfast, not an address"),
        ({"valueFormat": "bytes", "valueSchema": "id BIGINT"}, "valueSchema is for valueFormat=json"),
        ({"topics": ","}, "names with commas"),
        ({"endingOffsets": "earliest"}, "it takes latest, or JSON .* earliest would be an empty batch"),
        ({"endingOffsets": '{"orders": {"0": 7, "1": -2}}'}, "earliest would be an empty batch"),
        ({"endingOffsets": "7"}, "it takes latest, or JSON"),
    ],
)
def test_wrong_options_say_what_is_right(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        parse(given, "source")


def test_options_have_no_case_and_every_one_is_told() -> None:
    assert parse({"STARTINGOFFSETS": "Latest"}, "source")["startingOffsets"] == "latest"
    assert parse({"maxbytespertrigger": "64m"}, "source")["maxBytesPerTrigger"] == 64 << 20
    assert parse({"startingTimestamp": "1970-01-01T00:00:01"}, "source")["startingTimestamp"] == 1000
    defaults = {each.name: each.default for each in declared("source") if each.default is not None}
    assert parse(defaults, "source") == parse({}, "source"), "what the table shows can be given"
    assert (defaults["maxTriggerDelay"], defaults["timeout"]) == ("15m", "60s")
    page = (ROOT / "docs/reference/options.md").read_text()
    assert table("source") in page, "run python -m tests.kit.made_pages"
    assert len({each.name.lower() for each in OPTIONS}) == len(OPTIONS)


def test_one_way_to_name_topics(data: Path) -> None:
    with pytest.raises(BadConfiguration, match="has both topic and topicsPattern"):
        source(data, topicsPattern=".*").reader(columns())
    with pytest.raises(BadConfiguration, match="predefinedSubscription is for streams"):
        source(data, predefinedSubscription="s").reader(columns())
    with pytest.raises(BadConfiguration, match="names no topic"):
        BatchReader(parse({"path": str(data)}, "source"), columns())


def rows(reader: Any, splits: Any) -> list[int]:
    return [row["position"] for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


def test_a_relative_path_is_the_drivers(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks have working directories of their own."""
    monkeypatch.chdir(data.parent)
    reader = source("data").reader(columns())
    splits = reader.partitions()
    monkeypatch.chdir("/")
    assert rows(reader, splits) == list(range(10))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_directory_that_a_task_does_not_find_is_no_loss(data: Path, fail: str) -> None:
    """Otherwise failOnDataLoss=false would return no rows, and a stream would skip them."""
    reader = source(data, failOnDataLoss=fail).reader(columns())
    splits = reader.partitions()
    stream, late = (Stream(str(data), failOnDataLoss=fail) for _ in range(2))
    end = stream.end()
    planned, place = stream.reader.partitions(stream.offset, end), FilePlace(str(data))
    place.open(ORDERS)
    elsewhere = data.rename(data.with_name("elsewhere"))
    words = (
        f"{data} is not a broker's directory on {socket.gethostname()}, where this task runs; "
        "give .*service.url"
    )
    for read in (reader.read, stream.reader.read):
        for split in (*splits, *planned):
            with pytest.raises(BadConfiguration, match=words):
                list(read(split))
    with pytest.raises(Exception, match=f"{data} is not a broker's directory"):
        late.reader.partitions(stream.offset, end)
    late.reader._held = None  # as it is when Spark asks for a batch that was planned before a restart
    with pytest.raises(Exception, match=f"{data} is not a broker's directory"):
        late.reader.partitions(stream.offset, end)
    with pytest.raises(BadConfiguration, match="is its volume still mounted"):
        place.open(ORDERS)
    shutil.move(elsewhere, data)
    assert rows(reader, splits) == rows(stream.reader, planned) == list(range(10))


@pytest.mark.parametrize("topic", ["orders", "bills"])
def test_another_brokers_directory_is_not_read(data: Path, topic: str) -> None:
    """On another machine the path may be another directory, with or without the topic."""
    reader = source(data, failOnDataLoss="false").reader(columns())
    splits = reader.partitions()
    data.rename(data.with_name("elsewhere"))
    fill(data, topic)
    with pytest.raises(
        BadConfiguration, match=f"{data} is another broker's directory on {socket.gethostname()}"
    ):
        rows(reader, splits)


def test_a_directory_that_goes_while_it_is_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing topic is a loss only if its directory exists."""
    reader = source(data, failOnDataLoss="false").reader(columns())
    splits = reader.partitions()

    def unmounted(self: FilePlace, name: str, view: int = 0) -> Any:
        data.rename(data.with_name("elsewhere"))
        raise NotFound(f"no topic {name}")

    monkeypatch.setattr(FilePlace, "open", unmounted)
    with pytest.raises(BadConfiguration, match="is not a broker's directory on"):
        rows(reader, splits)


def test_columns_that_cannot_be_null_are_refused(data: Path) -> None:
    """Spark would believe it: `WHERE key IS NULL` finds nothing, though all of them are null."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructType,
    )

    place = StructType().add("ledger", LongType()).add("entry", LongType(), False)
    lists = StructType().add("a", ArrayType(LongType(), containsNull=False))
    maps = MapType(StringType(), StringType(), valueContainsNull=False)
    for made, words, options in (
        (
            columns("value").add("key", BinaryType(), False),
            "key must be able to be null: leave out NOT NULL",
            {},
        ),
        (
            columns("value").add("messageId", place.add("batchIndex", IntegerType())),
            "messageId.entry must be",
            {},
        ),
        (columns("key").add("properties", maps), "properties.value must be able to be null", {}),
        (columns("key").add("value", lists), "value.a.element must be able", {"valueFormat": "json"}),
    ):
        for read in (source(data, **options).reader, source(data, **options).streamReader):
            with pytest.raises(BadConfiguration, match=words):
                read(made)


def test_the_values_type_stands_in_one_place(data: Path) -> None:
    """The user's schema gives the type of the value; options that contradict it are refused."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    ids = StructType().add("id", LongType())
    typed, plain = columns("position").add("value", ids), columns("position").add("value", BinaryType())
    for made, words, options in (
        (plain, "with valueFormat=json the column value is a struct, not binary", {"valueFormat": "json"}),
        (typed, "the column value is binary; for a struct, give valueFormat=json", {}),
        (typed, "the column value is binary; for a struct", {"valueFormat": "bytes"}),
        (typed, "leave out valueSchema", {"valueSchema": "id BIGINT"}),
        (typed, "leave out valueSchema", {"valueFormat": "json", "valueSchema": "non sense ("}),
        (columns("position"), "leave out valueSchema", {"valueFormat": "json", "valueSchema": "non sense ("}),
        (plain, "valueSchema is for valueFormat=json", {"valueFormat": "bytes", "valueSchema": "id BIGINT"}),
    ):
        for read in (source(data, **options).reader, source(data, **options).streamReader):
            with pytest.raises(BadConfiguration, match=words):
                read(made)
    with pytest.raises(BadConfiguration, match="valueFormat=json needs valueSchema"):
        source(data, valueFormat="json").schema()
    with Broker.open(data) as broker, broker.producer("orders") as producer:
        producer.send_many([b'{"id": 5}'])
    reader = source(data, valueFormat="json", startingOffsets='{"orders": {"0": 10}}').reader(typed)
    (split,) = reader.partitions()
    found: Any = list(reader.read(split))
    assert found[0].to_pylist() == [{"position": 10, "value": {"id": 5}}]
