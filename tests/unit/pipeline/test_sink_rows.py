"""Test rows as entries: columns, refusals with their texts, and memory."""

from __future__ import annotations

import base64
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast import BadConfiguration, Misuse
from holdfast._core import crc32c, parse_entry
from holdfast.pipeline.options import table
from holdfast.pipeline.sink import writer as sink
from holdfast.pipeline.sink.rows import PIECE_BYTES, Rows, parts
from holdfast.pipeline.sink.writer import HELD_BYTES, BatchWriter, Staged, Staging, StreamWriter
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit import ROOT

TOPIC = "persistent://public/default/orders"
URL = {"service.url": "holdfast://127.0.0.1:1"}


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "struct": StructType([StructField("a", IntegerType())]),
    "map<string,string>": MapType(StringType(), StringType(), valueContainsNull=False),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


def schema(columns: str) -> StructType:
    """Of `value string, key binary`: DDL without a session."""
    fields = [column.split(" ") for column in columns.split(", ")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in fields])


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_value_alone() -> None:
    rows = Rows.of(schema("value string"), "orders")
    made = rows.entries(batch(value=["rope", "", "tär"]), "spark-1", 7)
    assert list(made) == [TOPIC]
    found = [parse_entry(each) for each in made[TOPIC]]
    assert [each.payload for each in found] == [b"rope", b"", "tär".encode()]
    assert [each.sequence for each in found] == [7, 8, 9]
    assert {each.producer for each in found} == {"spark-1"}
    assert [each.key for each in found] == [None] * 3


def test_several_to_an_entry() -> None:
    rows = Rows.of(schema("value binary"), "orders", per_entry=2)
    made = rows.entries(batch(value=[b"a", b"b", b"c"]), "spark", 0)[TOPIC]
    assert [parse_entry(each).messages for each in made] == [2, 1]


def test_everything_that_a_message_has() -> None:
    ddl = "topic string, eventTime timestamp, Value binary, key string, properties map<string,string>"
    rows = Rows.of(schema(ddl), None)
    piece = pa.RecordBatch.from_arrays(
        [
            pa.array(["orders", "a/b/c", "orders"]),
            pa.array([1_700_000_000_123_999, None, 999], pa.timestamp("us", "UTC")),
            pa.array([b"x", b"y", None]),
            pa.array(["smith", None, "jones"]),
            pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        ],
        names=["topic", "eventTime", "Value", "key", "properties"],
    )
    made = rows.entries(piece, "spark", 0)
    first, last = map(parse_entry, made[TOPIC])
    (other,) = map(parse_entry, made["persistent://a/b/c"])
    assert (first.payload, first.key, first.properties) == (b"x", "smith", {"k": "v"})
    assert first.event_time_ms == 1_700_000_000_123, "never later than it was"
    assert (other.payload, other.key, other.properties, other.event_time_ms) == (b"y", None, {}, 0)
    assert (last.payload, last.key, last.null_value, last.event_time_ms) == (b"", "jones", True, 0)
    assert [first.sequence, other.sequence, last.sequence] == [0, 1, 2]


def test_a_null_value_has_all_the_rest() -> None:
    rows = Rows.of(schema("value string, key binary, eventTime timestamp"), "orders")
    piece = pa.RecordBatch.from_arrays(
        [
            pa.array([None], pa.string()),
            pa.array([b"\xff\x00"]),
            pa.array([5_000_000], pa.timestamp("us", "UTC")),
        ],
        names=["value", "key", "eventTime"],
    )
    (entry,) = rows.entries(piece, "spark", 3)[TOPIC]
    found = parse_entry(entry)
    assert (found.null_value, found.key, found.event_time_ms, found.sequence) == (True, b"\xff\x00", 5000, 3)
    assert base64.b64encode(b"\xff\x00") in entry


def test_keys_of_bytes_and_of_text() -> None:
    for type_, given, wanted in (
        ("string", "smith", "smith"),
        ("binary", b"smith", b"smith"),
        ("binary", b"\xff", b"\xff"),
    ):
        rows = Rows.of(schema(f"value string, key {type_}"), "orders")
        (entry,) = rows.entries(batch(value=["x"], key=[given]), "spark", 0)[TOPIC]
        assert parse_entry(entry).key == wanted


def test_large_types_of_arrow() -> None:
    rows = Rows.of(schema("value string"), "orders")
    piece = pa.RecordBatch.from_arrays([pa.array(["x"], pa.large_string())], names=["value"])
    assert parse_entry(rows.entries(piece, "spark", 0)[TOPIC][0]).payload == b"x"


def test_what_was_read_can_be_written() -> None:
    ddl = "key binary, value binary, topic string, partition int, publishTime timestamp, producer string"
    rows = Rows.of(schema(f"{ddl}, sequenceId bigint, position bigint, messageId struct"), None)
    assert set(rows.columns) == {"key", "value", "topic"}


@pytest.mark.parametrize(
    ("ddl", "topic", "words"),
    [
        ("key string", "t", "needs a column value, string or binary; the columns are: key"),
        ("value int", "t", r"column value is int; it must be string or binary: .*cast"),
        ("value struct", "t", r"column value is struct<a:int>; .*to_json\(value\)"),
        ("value string, key bigint", "t", r"column key is bigint; .*cast\(key as string\)"),
        ("value string, properties map<string,int>", "t", r"column properties is map<string,int>"),
        ("value string, eventTime bigint", "t", r"column eventTime is bigint; .*timestamp_millis"),
        ("value string, topic int", None, "column topic is int"),
        (
            "value string, propertys map<string,string>",
            "t",
            r"'propertys'; did you mean properties\?",
        ),
        ("value string, Value string", "t", "there are two columns value"),
        ("value string, wheel int", "t", "no column 'wheel'"),
        ("value string", None, "give option topic for all of them, or a column topic"),
    ],
)
def test_columns_that_are_wrong(ddl: str, topic: str | None, words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        Rows.of(schema(ddl), topic)


def test_rows_that_are_wrong() -> None:
    with pytest.raises(Misuse, match="option topic: 'a/b' is not the name of a topic"):
        Rows.of(schema("value string"), "a/b")
    rows = Rows.of(schema("value string, topic string"), None)
    with pytest.raises(Misuse, match="column topic: 'a/b' is not the name of a topic; write orders"):
        rows.entries(batch(value=["x", "y"], topic=["orders", "a/b"]), "spark", 0)
    with pytest.raises(Misuse, match="column topic is NULL in a row"):
        rows.entries(batch(value=["x"], topic=pa.array([None], pa.string())), "spark", 0)
    rows = Rows.of(schema("value string, eventTime timestamp"), "t")
    before = pa.array([-1], pa.timestamp("us", "UTC"))
    with pytest.raises(Misuse, match="column eventTime is before 1970"):
        rows.entries(pa.RecordBatch.from_arrays([pa.array(["x"]), before], ["value", "eventTime"]), "s", 0)
    rows = Rows.of(schema("value string, properties map<string,string>"), "t")
    missing = pa.array([[("k", None)]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(Misuse, match="property 'k' is NULL in a row; map_filter"):
        rows.entries(pa.RecordBatch.from_arrays([pa.array(["x"]), missing], ["value", "properties"]), "s", 0)


def test_strings_that_are_no_text() -> None:
    """Spark makes them of any bytes: cast(X'ff41' as string)."""
    text, maps = pa.array([b"ok", b"\xffA"]).view(pa.string()), pa.map_(pa.string(), pa.string())
    inside = pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "a"]), text).cast(maps)
    values = pa.array(["x", "y"])
    for name, kind, column, advice in (
        ("key", "string", text, "cast(key as binary) writes a key of bytes"),
        ("topic", "string", text, "name a topic"),
        ("properties", "map<string,string>", inside, "base64(…) makes text of any bytes"),
    ):
        rows = Rows.of(schema(f"value string, {name} {kind}"), None if name == "topic" else "t")
        piece = pa.RecordBatch.from_arrays([values, column], ["value", name])
        told = f"column {name} is not text in row 11 of its task: b'\\xffA' is not UTF-8; {advice}, or decode"
        with pytest.raises(Misuse, match=re.escape(told)):
            rows.entries(piece, "spark", 10)
    rows = Rows.of(schema("value string"), "t")
    assert rows.entries(pa.RecordBatch.from_arrays([text], ["value"]), "spark", 0), "a value is any bytes"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the sink needs option service.url, such as holdfast://127.0.0.1:6650"),
        ({"service.url": "ftp://localhost"}, "the sink needs the broker's binary address"),
        ({"service.url": "holdfast://"}, "not a broker's address"),
        ({**URL, "path": "data"}, "only one may open a directory. Start `holdfast serve --data DIR`"),
        ({**URL, "topci": "x"}, r"no option 'topci'; did you mean topic.*service.url"),
        ({**URL, "startingOffsets": "latest"}, "it is an option of the source"),
        ({**URL, "timeout": "60"}, "option timeout is '60'; it takes a time with its unit"),
        ({**URL, "batchId": "-1", "sinkName": "x"}, "option batchId is '-1'; it takes a whole number"),
        ({**URL, "batchId": "1"}, "give option sinkName, too"),
    ],
)
def test_options_that_are_wrong(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        BatchWriter({"topic": "t", **given}, schema("value string"), False)


def test_what_no_topic_can_do() -> None:
    for kind in (BatchWriter, StreamWriter):
        with pytest.raises(BadConfiguration, match=r"never overwritten: write with mode\('append'\)"):
            kind({"topic": "t", **URL}, schema("value string"), True)
    with pytest.raises(BadConfiguration, match="Spark numbers a stream's batches"):
        StreamWriter({"topic": "t", "sinkName": "x", "batchId": "1", **URL}, schema("value string"), False)
    with pytest.raises(Misuse, match="Spark did not pass query and batch to this task"):
        StreamWriter({"topic": "t", **URL}, schema("value string"), False).write(iter([]))


def test_a_commit_that_is_not_whole() -> None:
    """No entry is sent: no broker listens at this address, and there is no wait."""
    writer = StreamWriter({"topic": "t", **URL}, schema("value string"), False)
    writer.commit([], 3)
    writer.commit([Staged(None, 0, "q", 3)], 3)
    with pytest.raises(Misuse, match="1 of 2 tasks did not return their stages; nothing was published"):
        writer.commit([Staged(None, 0, "q", 3), None], 3)
    for other in (Staged(None, 0, "q", 2), Staged(None, 0, "other", 3)):
        with pytest.raises(Misuse, match="batch 3 was staged as"):
            writer.commit([Staged(None, 0, "q", 3), other], 3)


def test_secrets_are_not_shown() -> None:
    made = BatchWriter({"topic": "t", "token": "s3cret", **URL}, schema("value string"), False)
    assert "s3cret" not in repr(made.address)


class Recorded:
    """A client that takes everything, and looks how much is held."""

    message_bytes_max = None

    def __init__(self) -> None:
        self.id = b""
        self.sent: dict[str, list[bytes]] = {}
        self.calls = 0

    def stage(self, id: bytes) -> Recorded:  # noqa: A002
        self.id = id
        return self

    def append_entries(self, topic: str, entries: list[bytes]) -> None:
        self.calls += 1
        self.sent.setdefault(topic, []).extend(entries)


@pytest.mark.parametrize("topics", [1, 300])
def test_what_is_held_is_bounded(topics: int) -> None:
    client, most, count = Recorded(), 0, 4000
    staging = Staging(client)  # type: ignore[arg-type]
    staging.open()
    for i in range(count):
        staging.add(f"t{i % topics}", [b"%d" % i + b"x" * 10_000])
        for _ in staging.send():
            pass
        most = max(most, staging._size)
    assert most <= HELD_BYTES + 10_010
    for _ in staging.send(0):
        pass
    assert staging._size == 0
    assert sum(map(len, client.sent.values())) == count
    assert client.calls <= topics + 2 * count * 10_000 / (HELD_BYTES / 2 / topics)
    for entries in client.sent.values():
        numbers = [int(entry.rstrip(b"x")) for entry in entries]
        assert numbers == sorted(numbers), "in order per topic"


def test_a_batch_is_taken_in_pieces() -> None:
    rows = Rows.of(schema("value binary"), "orders")
    large = batch(value=[b"x" * 100_000] * 100)
    pieces = list(rows.pieces(large))
    assert sum(piece.num_rows for piece in pieces) == 100
    assert max(piece.num_rows for piece in pieces) * 100_000 <= PIECE_BYTES
    assert list(rows.pieces(batch(value=pa.array([], pa.binary())))) == []


def test_the_steps_are_named() -> None:
    from tests.kit.spark.sink_kill import STRIKES

    assert {arm.step for arms in STRIKES for arm in arms} == set(sink.STEPS), "each is struck"


def test_the_page_shows_the_options() -> None:
    page = (ROOT / "docs/reference/options.md").read_text(encoding="utf-8")
    assert table("sink") in page, "run python -m tests.kit.made_pages"


def test_keys_as_their_producers_had_them() -> None:
    """The source reads all keys as bytes; the sink restores text and bytes."""
    rows = Rows.of(schema("value binary, key binary, keyEncoding string, orderingKey binary"), "orders")
    piece = batch(
        value=pa.array([b"a", b"b", b"c", None, b"e", b"f"], pa.binary()),
        key=pa.array([b"t\xc3\xa4r", b"\xff", b"", b"ab", None, b"\xff"], pa.binary()),
        keyEncoding=[None, "base64", None, "base64", None, None],
        orderingKey=pa.array([b"o", None, b"", b"n", None, None], pa.binary()),
    )
    found = [pb_of(each)[0] for each in rows.entries(piece, "p", 0)[TOPIC]]
    keys = [each.partition_key if each.HasField("partition_key") else None for each in found]
    assert keys == ["tär", "/w==", "", "YWI=", None, "/w=="]  # the last one cannot be text
    assert [each.partition_key_b64_encoded for each in found] == [False, True, False, True, False, True]
    orders = [each.ordering_key if each.HasField("ordering_key") else None for each in found]
    assert orders == [b"o", None, b"", b"n", None, None]
    assert [each.null_value for each in found] == [False] * 3 + [True] + [False] * 2
    wrong = batch(value=[b"a"], key=[b"k"], keyEncoding=["hex"], orderingKey=[b""])
    with pytest.raises(Misuse, match="keyEncoding is 'hex'"):
        rows.entries(wrong, "p", 0)


def test_what_is_encrypted_is_written_as_it_is() -> None:
    rows = Rows.of(schema("value binary, encryption binary"), "orders")
    before = pb.MessageMetadata(producer_name="old", sequence_id=7, publish_time=1, highest_sequence_id=9)
    before.encryption_keys.add(key="k", value=b"\x00secret")
    before.encryption_param, before.num_messages_in_batch, before.compression = b"iv", 3, pb.SNAPPY
    header = before.SerializeToString()
    entries = rows.entries(batch(value=[b"\x80", b"plain"], encryption=[header, None]), "new", 20)[TOPIC]
    (found, payload), (plain, _) = map(pb_of, entries)
    assert parse_entry(entries[0]).messages == 3
    assert (found.producer_name, found.sequence_id, found.highest_sequence_id) == ("new", 20, 22)
    assert found.publish_time > 1
    assert payload == b"\x80"
    found.producer_name, found.sequence_id, found.publish_time, found.highest_sequence_id = "old", 7, 1, 9
    assert found == before
    assert not plain.encryption_keys
    for wrong, words in ((b"\xff", "not a MessageMetadata"), (b"", "not a MessageMetadata|not encrypted")):
        with pytest.raises(Misuse, match=words):
            rows.entries(batch(value=[b"x"], encryption=[wrong]), "new", 0)


def test_versions_of_schemas() -> None:
    ddl = "value binary, key string, properties map<string,string>, eventTime timestamp, orderingKey binary"
    rows = Rows.of(schema(f"{ddl}, schemaVersion bigint"), "orders")
    types = [pa.binary(), pa.string(), pa.map_(pa.string(), pa.string()), pa.timestamp("us", "UTC")]
    told = [[("a", "b")]] * 4
    columns = [[b"x", b"", None, b"x"], ["k"] * 4, told, [5_000_000] * 4, [b"o"] * 4, [3, 1 << 40, 0, None]]
    arrays = [
        pa.array(each, kind) for each, kind in zip(columns, [*types, pa.binary(), pa.int64()], strict=True)
    ]
    piece = pa.RecordBatch.from_arrays(arrays, names=[*rows.columns])
    first, empty, null, plain = (pb_of(each)[0] for each in rows.entries(piece, "p", 0)[TOPIC])
    found = [int.from_bytes(each.schema_version, "big") for each in (first, empty, null)]
    assert found == [3, 1 << 40, 0]
    assert rows.versions == {(TOPIC, 3), (TOPIC, 1 << 40), (TOPIC, 0)}
    assert not plain.HasField("schema_version")
    assert ([each.null_value for each in (first, empty, null)], null.partition_key) == (
        [False, False, True],
        "k",
    )
    # All the rest is as the core writes it.
    first.ClearField("schema_version")
    first.sequence_id, first.publish_time = plain.sequence_id, plain.publish_time
    assert first == plain
    with pytest.raises(Misuse, match=r"schemaVersion is -1 in row 7 of its task; a version is 0 or more"):
        Rows.of(schema("value binary, schemaVersion bigint"), "orders").entries(
            batch(value=[b"x"], schemaVersion=[-1]), "p", 7
        )


def test_the_version_of_what_is_encrypted() -> None:
    """With the column the version is that of the row, not that in the metadata."""
    before = pb.MessageMetadata(producer_name="old", sequence_id=7, publish_time=1, schema_version=bytes(8))
    before.encryption_keys.add(key="k", value=b"secret")
    header = before.SerializeToString()
    given = batch(
        value=[b"x", b"x"], encryption=[header, header], schemaVersion=pa.array([5, None], pa.int64())
    )
    rows = Rows.of(schema("value binary, encryption binary, schemaVersion bigint"), "orders")
    five, none = (pb_of(each)[0] for each in rows.entries(given, "p", 0)[TOPIC])
    assert (five.schema_version, none.HasField("schema_version")) == ((5).to_bytes(8, "big"), False)
    kept = Rows.of(schema("value binary, encryption binary"), "orders")
    (same, _) = (
        pb_of(each)[0] for each in kept.entries(given.select(["value", "encryption"]), "p", 0)[TOPIC]
    )
    assert same.schema_version == bytes(8)


def test_a_version_that_the_topic_does_not_have() -> None:
    made = BatchWriter({"topic": "orders", **URL}, schema("value binary, schemaVersion bigint"), False)
    asked: list[tuple[str, int]] = []

    class Known:
        def has_schema(self, topic: str, version: int) -> bool:
            asked.append((topic, version))
            return version < 2

    client: Any = Known()
    made.rows.versions.update({(TOPIC, 0), (TOPIC, 1)})
    known = made._require_versions(client, frozenset())
    assert made._require_versions(client, known) == known
    assert asked == [(TOPIC, 0), (TOPIC, 1)], "each is asked for once"
    made.rows.versions.add((TOPIC, 2))
    with pytest.raises(
        Misuse, match=r"schemaVersion is 2 in a row, and .*orders has no schema of this version"
    ):
        made._require_versions(client, known)


def test_what_is_too_large_goes_in_parts() -> None:
    rows = Rows.of(schema("value binary, key string, properties map<string,string>"), "orders")
    value = bytes(range(256)) * 40
    piece = pa.RecordBatch.from_arrays(
        [
            pa.array([value]),
            pa.array(["k"]),
            pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        ],
        names=["value", "key", "properties"],
    )
    (entry,) = rows.entries(piece, "p" * 170, 3)[TOPIC]
    for most in (len(entry) - 1, 1000):
        cut = [pb_of(each) for each in parts(entry, most)]
        assert max(map(len, parts(entry, most))) <= most
        assert b"".join(payload for _, payload in cut) == value
        assert [each.chunk_id for each, _ in cut] == list(range(len(cut)))
        for each, _ in cut:
            assert (each.num_chunks_from_msg, each.total_chunk_msg_size) == (len(cut), len(value))
            assert (each.partition_key, each.uuid, each.sequence_id) == ("k", "p" * 170 + "-3", 3)
    assert parts(entry, len(entry)) == parts(entry, None) == [entry]
    assert parts(entry, 100) == [entry]  # not even one part's metadata fits


def pb_of(entry: bytes) -> tuple[pb.MessageMetadata, bytes]:
    size = int.from_bytes(entry[6:10], "big")
    assert crc32c(entry[6:]) == int.from_bytes(entry[2:6], "big")
    return pb.MessageMetadata.FromString(entry[10 : 10 + size]), entry[10 + size :]
