"""Test the sink with stages that are too large, expired or denied."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast import AuthenticationFailed, Corrupt, Denied, IncompatibleSchema, Misuse, NotFound
from holdfast._core import parse_entry
from holdfast.client import Client, Stage, StageReceipt
from holdfast.pipeline.sink.rows import PIECE_BYTES, PIECE_ROWS, SHARED_BYTES, Rows
from holdfast.pipeline.sink.writer import BatchWriter, Staged
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.auth_world import make_world, token
from tests.kit.spark.sink_kill import read

pytestmark = pytest.mark.timeout(300)

VALUE = StructType([StructField("value", StringType())])
ROUTED = StructType([StructField("value", StringType()), StructField("topic", StringType())])
LITTLE = 65_536
"""The largest entry of the server here: less than what a task sends at once otherwise."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("data")
    keep = ("--set", "broker.retention_bytes=-1", "--set", f"limits.message_bytes={LITTLE}")
    with served(data, *keep) as server:
        yield server


def writer(url: str, schema: StructType = VALUE, **options: Any) -> BatchWriter:
    return BatchWriter({"service.url": url, **{k: str(v) for k, v in options.items()}}, schema, False)


def staged(made: BatchWriter, **columns: list[str]) -> list[WriterCommitMessage | None]:
    """Return the answer of the driver's one task."""
    return [made.write(iter([pa.RecordBatch.from_pydict(columns)]))]


def write(url: str, schema: StructType = VALUE, *, options: dict[str, Any], **columns: list[str]) -> None:
    made = writer(url, schema, **options)
    made.commit(staged(made, **columns))


@pytest.mark.parametrize("shared", [1, 100])
def test_a_broker_that_takes_little(server: Served, shared: int) -> None:
    """Rows are staged in the largest allowed pieces; a larger row is chunked."""
    values = [f"{i}:" + "x" * size for i, size in enumerate([1000] * 500 + [LITTLE, 3, 200_000, 65_480, 7])]
    topic = f"little-{shared}"
    write(server.url, options={"topic": topic, "messagesPerEntry": shared}, value=values)
    assert [message.data().decode() for message in read(server.url, topic)] == values


def test_rows_of_uneven_size() -> None:
    """In any order of rows: a piece is a megabyte or a row."""
    rows = Rows.of(VALUE, "orders", per_entry=100)
    values = ["x"] * 40_000 + ["y" * 300_000] * 30 + ["z" * 5000] * 300
    pieces = list(rows.pieces(pa.RecordBatch.from_pydict({"value": values})))
    assert [value for piece in pieces for value in piece.column(0).to_pylist()] == values
    for piece in pieces:
        assert piece.num_rows == 1 or piece.nbytes <= PIECE_BYTES
        assert piece.num_rows <= PIECE_ROWS
    found, number = [], 0
    for piece in pieces:
        ((_, entries),) = rows.entries(piece, "spark", number).items()
        for entry in map(parse_entry, entries):
            assert entry.messages == 1 or len(entry.payload) <= SHARED_BYTES
            assert entry.sequence == number
            number += entry.messages
            found.append(entry.messages)
    assert number == len(values)
    assert max(found) == 100
    assert found.count(1) >= 30, "a large one is alone"


def test_a_commit_that_is_too_large(server: Served) -> None:
    """Before it is sent: a broker would only hear that this is not the protocol."""
    parts = tuple((topic, 1, 1) for topic in range(10_000))
    with (
        Client(server.url, timeout=60.0) as client,
        pytest.raises(Misuse, match="publish fewer stages, or to fewer topics, at once"),
    ):
        client.sink_commit("large", 1, [StageReceipt(b"x" * 16, parts)])


def test_a_topic_of_nowhere(server: Served) -> None:
    """Rows name their topics: with a denied one, no row of the batch is published."""
    for name, words in (("persistent://no/where/x", "no namespace no/where"), ("", "cannot name a topic")):
        with pytest.raises((NotFound, Misuse), match=words):
            write(server.url, ROUTED, options={}, value=["x", "y"], topic=["somewhere", name])
    with Client(server.url) as client:
        assert client.progress("somewhere", "s", create=True).visible == 0


def test_who_may_not(tmp_path: Path) -> None:
    """Each error comes at once: no token, a wrong token, a token for other topics."""
    world = make_world(tmp_path)
    narrow = 'roles = ["narrow"]\non = "public/default/open-*"\nallow = ["produce"]\n'
    config = world.configure(extra=f"[[authorization.grants]]\n{narrow}")
    with served(tmp_path / "data", "--config", config, "--tls-port", "0") as server:
        for given in ({}, {"token": "not a token"}):
            with pytest.raises(AuthenticationFailed):
                write(server.url, options={"topic": "orders", **given}, value=["x"])
        nobody = {"token": token("nobody")}
        with pytest.raises(Denied, match="nobody"):
            write(server.url, options={"topic": "orders", **nobody}, value=["x"])
        some = {"token": token("narrow")}
        with pytest.raises(Denied, match="closed"):
            write(server.url, ROUTED, options=some, value=["x", "y"], topic=["open-door", "closed"])
        with Client(server.url, token=token("root")) as client:
            assert client.progress("open-door", "s", create=True).visible == 0
        write(server.url, ROUTED, options=some, value=["x"], topic=["open-door"])


def test_a_stage_that_is_too_old(tmp_path: Path) -> None:
    """A stage expires before the commit: the batch fails, and can be written again."""
    age = ("--set", "broker.stage_age_s=1", "--set", "broker.housekeeping_s=0.05")
    with served(tmp_path / "data", *age, "--set", "broker.retention_bytes=-1") as server:
        made = writer(server.url, topic="orders", sinkName="day", batchId=1)
        (late,) = until(lambda: in_time(made, ["a", "b"]))
        assert isinstance(late, Staged)
        assert late.receipt is not None
        with Client(server.url) as client:
            stage = late.receipt.stage
            until(lambda: not held(client, stage))
            fresh = until(lambda: in_time(made, ["c"]))
            with pytest.raises(NotFound, match="stage the batch again"):
                made.commit([late, *fresh])
            assert client.progress("orders", "s", create=True).visible == 0
        until(lambda: published(made))
        assert [message.data() for message in read(server.url, "orders")] == [b"a", b"b"]


def held(client: Client, stage: bytes) -> bool:
    """Whether the broker has the stage still."""
    try:
        Stage(client, stage).close()
    except NotFound:
        return False
    except Corrupt:  # it has something that this end has not sent
        return True
    return True


def in_time(made: BatchWriter, values: list[str]) -> list[WriterCommitMessage | None]:
    """Staged before it is too old; else nothing."""
    try:
        return staged(made, value=values)
    except NotFound:
        return []


def published(made: BatchWriter) -> bool:
    """Staged and committed before it is too old."""
    try:
        made.commit(staged(made, value=["a", "b"]))
    except NotFound:
        return False
    return True


def test_a_copy_of_a_checkpoint_is_told(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Two writers under one key: the second batch is left out, with a reason."""
    for value in ("mine", "yours"):
        with caplog.at_level(logging.WARNING):
            write(server.url, options={"topic": "one", "sinkName": "same", "batchId": 1}, value=[value])
    assert [message.data() for message in read(server.url, "one")] == [b"mine"]
    assert "give one of them another sinkName" in caplog.text


def test_versions_of_schemas(server: Served) -> None:
    """The topic must have the schema that a row names."""
    schema = StructType([*VALUE, StructField("schemaVersion", LongType())])

    def written(topic: str, *versions: int | None) -> None:
        made = writer(server.url, schema, topic=topic)
        columns = {"value": pa.array(["7"] * len(versions)), "schemaVersion": pa.array(versions, pa.int64())}
        made.commit([made.write(iter([pa.RecordBatch.from_pydict(columns)]))])

    kinds = [
        pb.Schema(name="s", type=kind, schema_data=b"").SerializeToString()
        for kind in (pb.Schema.Int32, pb.Schema.Int64)
    ]
    with Client(server.url) as client:
        assert client.add_schema("typed", kinds[0]) == 0
        written("typed", 0, None, 0)
        with pytest.raises(
            Misuse, match=r"schemaVersion is 1 in a row, and .*/typed has no schema of this version"
        ):
            written("typed", 0, 1)
        with pytest.raises(Misuse, match="add the schema first, or leave out the column"):
            written("typed-and-new", 0)
        assert client.progress("typed", "s", create=True).visible == 3
        with pytest.raises(IncompatibleSchema, match="of type INT32"):
            client.add_schema("typed", kinds[1])
        assert client.add_schema("typed", kinds[0]) == 0
        assert [client.has_schema("typed", version) for version in (0, 1)] == [True, False]
        assert not client.has_schema("missing", 0)
