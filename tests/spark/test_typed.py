"""Test values as typed columns: published by the official client, read by Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import KIT, module_command
from tests.kit.served import Served, served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

FIRST = {"name": "nails", "count": 7, "price": 2.5, "paid": True, "tags": ["a", "ü"]}
FIRST |= {"sizes": {"small": 1 << 40}, "place": {"city": "Kiel", "floor": 3}, "colour": None}
SECOND = {**FIRST, "name": "rope", "count": -1, "colour": "grey"}
TYPES = {
    "name": "string",
    "count": "int",
    "price": "double",
    "paid": "boolean",
    "tags": "array<string>",
    "sizes": "map<string,bigint>",
    "place": "struct<city:string,floor:int>",
    "colour": "string",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typed") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with served(data, "--set", "broker.retention_bytes=-1", http=True) as server:
        command = [*module_command(KIT / "spark/typed_client.py"), server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        yield server


@pytest.fixture(params=["path", "pulsar", "http"])
def place(request: pytest.FixtureRequest, server: Served, data: Path) -> dict[str, str]:
    """The option that says where the topics are."""
    return {
        "path": {"path": str(data)},
        "pulsar": {"service.url": server.url},
        "http": {"service.url": server.http_url},
    }[request.param]


def load(spark: SparkSession, place: dict[str, str], topic: str, schema: str = "", **more: str) -> DataFrame:
    options = {**place, "topic": topic, "valueFormat": "schema", **more}
    reader = spark.read.format("holdfast").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def values(rows: DataFrame) -> list[Any]:
    found = rows.orderBy("position").collect()
    return [row["value"] and row["value"].asDict(recursive=True) for row in found]


@pytest.mark.parametrize("topic", ["typed-json", "typed-avro"])
def test_two_versions(spark: SparkSession, place: dict[str, str], topic: str) -> None:
    """The newest schema names the columns, and each message is decoded by its own."""
    rows = load(spark, place, topic, mode="permissive")
    fields: Any = rows.schema["value"].dataType
    assert {each.name: each.dataType.simpleString() for each in fields} == TYPES
    plain = [] if topic == "typed-json" else [None]
    assert values(rows) == [FIRST, SECOND, FIRST, SECOND, *plain]
    found = rows.where("value.count > 0 AND value.tags[1] = 'ü'").select("value.place.city", "value.price")
    assert [tuple(row) for row in found.collect()] == [("Kiel", 2.5)] * 2


@pytest.mark.parametrize("topic", ["typed-json", "typed-avro"])
def test_versions_as_a_column(spark: SparkSession, place: dict[str, str], topic: str) -> None:
    """With typed values, of the user's own type, and with bytes."""
    own = "value STRUCT<colour: STRING, count: BIGINT>, schemaVersion BIGINT, position BIGINT, corrupt STRING"
    rows = load(spark, place, topic, own, mode="permissive").orderBy("position").collect()
    found = [(row["schemaVersion"], row["value"] and tuple(row["value"])) for row in rows]
    wanted: list[Any] = [(0, (None, 7)), (1, ("grey", -1))] * 2
    assert found == wanted + ([] if topic == "typed-json" else [(None, None)])
    assert ["no schema" in str(row["corrupt"]) for row in rows] == [version is None for version, _ in found]
    bytes_ = "value BINARY, schemaVersion BIGINT, position BIGINT"
    plain = spark.read.format("holdfast").options(**place, topic=topic).schema(bytes_).load()
    assert [row[0] for row in plain.orderBy("position").select("schemaVersion").collect()] == [
        version for version, _ in found
    ]


def test_a_value_without_a_schema_ends_the_query(spark: SparkSession, place: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"typed-avro, position 4: .*its producer had no schema.*permissive"):
        load(spark, place, "typed-avro").collect()


def test_a_stream(spark: SparkSession, place: dict[str, str], tmp_path: Path) -> None:
    """Its columns are those of the newest schema when it begins."""
    options = {**place, "topic": "typed-json", "valueFormat": "schema", "startingOffsets": "earliest"}
    stream = spark.readStream.format("holdfast").options(**options).option("maxOffsetsPerTrigger", 1).load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "out"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert values(spark.read.parquet(str(tmp_path / "out"))) == [FIRST, SECOND] * 2
