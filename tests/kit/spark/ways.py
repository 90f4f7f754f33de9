"""Checks of small things in the pipelines, which tests do and mutants must fail."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bench import pipeline_world
from holdfast.cli import spark, starved
from holdfast.columns.address import Address
from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.remote import RemotePlace
from holdfast.errors import BadConfiguration, HoldfastError
from holdfast.pipeline import java
from holdfast.pipeline.compact import compact
from holdfast.pipeline.sink import writer as sink
from holdfast.pipeline.source import tables
from tests.kit.ledger.topic_bytes import Maker, MemoryTopic
from tests.kit.served import served
from tests.kit.spark.pipeline_world import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE = {
    "location": "file:/srv/my data",
    "path": "file:/srv/my data",
    "provider": "holdfast",
    "owner": "root",
    "comment": "of mine",
    "colour": "a property of the table's",
    "topic": 'it\'s \\ "orders"',
    "option.topic": 'it\'s \\ "orders"',
    "startingoffsets": "earliest",
    "option.startingoffsets": "earliest",
    "sinkname": "s",
    "option.sinkname": "s",
}
"""Properties that Spark 4.3 passes for a table with path, topic, startingOffsets and sinkName."""


def check_payloads(size: int = 256, count: int = 5_000) -> None:
    found = pipeline_world.unique(size, count)
    assert len(found) == count
    assert {len(each) for each in found} == {size}
    assert len(set(found)) == count, "payloads repeat"
    assert all(each.isalnum() for each in found[:100]), "a line of text each"


def check_counts(spark: SparkSession, data: Path, to: Path) -> None:
    """Messages of batches are counted, and none twice."""
    publish(data, "t", [b"%d" % number for number in range(20)], batch=7, key="k")
    publish(data, "u", [b"x"], key="k")
    first = compact(spark, topics=["t", "u"], to=to, path=str(data))
    assert [(each.horizon, each.messages) for each in first.topics] == [(3, 20), (1, 1)]
    assert sum(each.messages for each in first.topics) == first.read == 21
    again = compact(spark, topics=["t", "u"], to=to, path=str(data))
    assert [(each.horizon, each.messages) for each in again.topics] == [(3, 0), (1, 0)]
    publish(data, "t", [b"a", b"b", b"c"], batch=3, key="k")
    more = compact(spark, topics=["t", "u"], to=to, path=str(data))
    assert [(each.horizon, each.messages) for each in more.topics] == [(4, 3), (1, 0)]
    assert more.read == 3 + 2, "and one of each key of the last result"
    assert more.record()["topics"][0]["messages"] == 3


def check_tables() -> None:
    """Check that queries of a table get the user's options, and no property of Spark."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    assert tables.is_table(MADE)
    told = tables.table_options(MADE)
    topic = 'it\'s \\ "orders"'
    given = {"path": "/srv/my data", "topic": topic, "startingoffsets": "earliest", "sinkname": "s"}
    assert told == given
    schema = StructType().add("key", BinaryType(), True, {"comment": tables.kept(told)}).add("n", LongType())
    read = {name: value for name, value in given.items() if name != "sinkname"}
    assert tables.recalled(schema, {}, "source") == read
    del read["topic"]
    assert tables.recalled(schema, {"Topic": "other"}, "source") == {**read, "Topic": "other"}
    written = {name: value for name, value in given.items() if name != "startingoffsets"}
    assert tables.recalled(schema, {}, "sink") == written


def check_starved() -> None:
    """Tasks that wait while none runs: a word, and then the end."""
    found, waiting = starved.Starved(15, 300), starved.Work(8, 0, 0)
    told = [found.look(float(now), waiting) for now in range(0, 320, 5)]
    assert (told.count("say"), told.index("say"), told.index("end")) == (1, 3, 60)
    busy = [found.look(1000.0 + now, starved.Work(8, 1, 0)) for now in range(0, 1000, 5)]
    assert set(busy) == {"wait"}


class Chosen(HoldfastError):
    """Raised in the place of a session, before Java is started."""


def check_conf() -> None:
    """Settings of `--conf` reach Spark, over those that holdfast chooses."""
    from pyspark.sql import SparkSession

    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        found.update(self._options)
        raise Chosen

    parser, found = argparse.ArgumentParser(), dict[str, str]()
    spark.add_session(parser)
    given = ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=true"]
    options = parser.parse_args(given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java, "ensure_java", lambda: None)
        patch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
        with pytest.raises(Chosen):
            spark.spark_for(options).__enter__()
    assert found["spark.executor.memory"] == "512m", "a setting is lost"
    assert found["spark.ui.enabled"] == "true", "a setting of holdfast's is stronger"
    assert found["spark.sql.session.timeZone"] == "UTC"


def check_overwrite() -> None:
    """The refusal names output modes that Spark takes for a sink in Python: `append` alone."""
    from pyspark.sql.types import StringType, StructType

    given = {"service.url": "pulsar://localhost:1", "topic": "t"}
    for make in (sink.BatchWriter, sink.StreamWriter):
        with pytest.raises(BadConfiguration, match="never overwritten") as refused:
            make(given, StructType().add("value", StringType()), True)
        assert {*re.findall(r"[mM]ode\('(\w+)'\)", str(refused.value))} == {"append"}, (
            "Spark refuses this mode"
        )


def check_unique_ids() -> None:
    made = Maker(9)
    made.any(100)
    topic: Any = MemoryTopic(made.entries)
    start, stop = topic.plan()
    batches = Decoding(topic, start, stop, Wish(["position", "uniqueId"])).batches()
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["uniqueId"] for row in rows}) == len(rows) > len({row["position"] for row in rows})


def check_one_address(data: Path) -> None:
    """Check that rows written at either address of a server are read at both."""
    from pyspark.sql.types import StringType, StructType

    schema = StructType().add("value", StringType())
    values = pa.record_batch([pa.array(["a", "b", "c"])], names=["value"])
    with served(data, http=True) as server:
        for name in ("t", "ä topic"):
            for url in (server.http_url, server.http_url + "/", server.url):
                writer = sink.BatchWriter({"service.url": url, "topic": name}, schema, False)
                writer.commit([writer.write(iter([values]))])
            for url in (server.http_url, server.url, server.url.replace("pulsar:", "holdfast:") + "/"):
                topic = RemotePlace(url).open(f"persistent://public/default/{name}")
                start, stop = topic.plan()
                batches = topic.decoding(start, stop, Wish(["value"])).batches()
                assert [each for batch in batches for each in batch[0].to_pylist()] == [b"a", b"b", b"c"] * 3
        told = {"service.url": server.http_url}  # a topic of each row's own
        assert Address.beside(told, "the sink") == Address.beside(told, "the sink", "t")
