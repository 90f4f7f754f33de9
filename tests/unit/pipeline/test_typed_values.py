"""`valueFormat=schema`: values as columns by the topic's schemas, without Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import Broker
from holdfast.errors import BadConfiguration, BadSchema, Corrupt, IncompatibleSchema
from holdfast.ledger.files import read_schemas
from holdfast.ledger.files.table import schemas_path
from holdfast.pipeline.source import typed_values
from holdfast.pipeline.source.avro_types import PARTS_MAX, Definition
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.pipeline.typed_world import (
    Made,
    TypedTopics,
    avro,
    column,
    definition,
    message,
    rows,
    schema,
)
from tests.kit.spark.source_rows import ORDERS

FIRST = definition(("name", "string"), ("count", "int"))
SECOND = definition(("name", ["null", "string"]), ("count", "long"), ("colour", ["null", "string"]))
OLDEST = pa.struct([("name", pa.string()), ("count", pa.int64())])
EXACT = pa.struct([("name", pa.string()), ("count", pa.int32())])
NEWEST = pa.struct([("name", pa.string()), ("count", pa.int64()), ("colour", pa.string())])


def fill(path: Path, schemas: Sequence[Any], made: Sequence[Made], name: str = "orders") -> None:
    asyncio.run(TypedTopics(path).fill(name, schemas, made))


def values(path: Path, kind: pa.DataType = NEWEST, **more: str) -> list[Any]:
    return [row["value"] for row in rows(str(path), kind, **more)]


@pytest.mark.parametrize("form", ["Json", "Avro"])
def test_versions_in_one_topic(tmp_path: Path, form: str) -> None:
    """The newest names the fields, and each message is decoded by its own."""

    def encoded(tree: dict[str, Any], **value: Any) -> bytes:
        return json.dumps(value, indent=True).encode() if form == "Json" else avro(tree, value)

    made = [
        (encoded(FIRST, name="nails", count=7), 0),
        (encoded(SECOND, name=None, count=1 << 40, colour="grey"), 1),
        (encoded(FIRST, name="rope", count=-1), 0),
    ]
    fill(tmp_path, [schema(form, FIRST), schema(form, SECOND)], made)
    assert column(str(tmp_path)) == "struct<name: string, count: bigint, colour: string>"
    assert values(tmp_path) == [
        {"name": "nails", "count": 7, "colour": None},
        {"name": None, "count": 1 << 40, "colour": "grey"},
        {"name": "rope", "count": -1, "colour": None},
    ]
    some = pa.struct([("colour", pa.string()), ("count", pa.float64())])
    assert values(tmp_path, some)[2] == {"colour": None, "count": -1.0}, "a type of the user's own"


def test_an_empty_namespace_is_none(tmp_path: Path) -> None:
    """As for the broker: a type in it is not in the namespace around it."""
    tree = definition(
        ("raw", {"type": "fixed", "name": "E", "size": 2}),
        ("inner", {**definition(("x", "int"), name="E"), "namespace": ""}),
        ("again", "E"),
        ("full", "a.b.E"),
        name="a.b.Order",
    )
    fill(tmp_path, [schema("Avro", tree)], [])
    assert column(str(tmp_path)) == "struct<raw: binary, inner: struct<x: int>, again: binary, full: binary>"


@pytest.mark.filterwarnings("ignore:Unknown local-timestamp-millis")  # of the registry's library
def test_all_types(tmp_path: Path) -> None:
    logical = {
        "day": ("int", "date"),
        "at": ("long", "timestamp-millis"),
        "exact": ("long", "timestamp-micros"),
        "here": ("long", "local-timestamp-millis"),
        "odd": ("string", "uuid"),
    }
    inner = definition(("x", "double"), name="Inner")
    tree = definition(
        *((name, {"type": kind, "logicalType": each}) for name, (kind, each) in logical.items()),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
        ("grade", {"type": "enum", "name": "Grade", "symbols": ["A", "B"]}),
        ("sum", {"type": "fixed", "name": "Sum", "size": 2}),
        ("raw", "bytes"),
        ("ok", ["null", "boolean"]),
        ("list", {"type": "array", "items": inner}),
        ("map", {"type": "map", "values": ["null", "Inner"]}),
        ("again", "Inner"),
        ("number", ["int", "long"]),
        name="a.b.Outer$Order",
    )
    fill(tmp_path, [schema("Avro", tree)], [])
    kind = (
        "struct<day: date, at: timestamp, exact: timestamp, here: timestamp_ntz, odd: string, "
        "price: decimal(6,2), grade: string, sum: binary, raw: binary, ok: boolean, "
        "list: array<struct<x: double>>, map: map<string, struct<x: double>>, "
        "again: struct<x: double>, number: bigint>"
    )
    assert column(str(tmp_path)) == kind
    value: dict[str, Any] = {
        "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 1, tzinfo=UTC), "odd": "u",
        "price": Decimal("12.30"),
        "exact": datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC), "here": datetime(2026, 1, 31, 1),
        "grade": "B", "sum": b"ab", "raw": b"\xff", "ok": None, "list": [{"x": 1.5}, {"x": 2.0}],
        "map": {"a": {"x": 1.0}, "b": None}, "again": {"x": 0.5}, "number": 1 << 40,
    }  # fmt: skip
    inside = pa.struct([("x", pa.float64())])
    instant = pa.timestamp("us", "UTC")
    target = pa.struct(
        [
            *(("day", pa.date32()), ("at", instant), ("exact", instant), ("here", pa.timestamp("us"))),
            *(("odd", pa.string()), ("price", pa.decimal128(6, 2)), ("grade", pa.string())),
            *(("sum", pa.binary()), ("raw", pa.binary()), ("ok", pa.bool_()), ("list", pa.list_(inside))),
            *(("map", pa.map_(pa.string(), inside)), ("again", inside), ("number", pa.int64())),
        ]
    )
    named = {**tree, "name": "Order"}
    fill(tmp_path, [], [(avro(named, value), 0)])
    [found] = values(tmp_path, target)
    assert found == {**value, "map": list(value["map"].items())}


BAD: list[tuple[str, bytes, int | None, str]] = [
    ("Avro", b"\x02", 0, "Expected 1 bytes, read 0"),
    ("Avro", avro(FIRST, {"name": "x", "count": 1}) + b"zz", 0, "2 bytes are left behind the record"),
    ("Avro", b"\x02\xff\x02", 0, "'utf-8' codec can't decode"),
    ("Avro", avro(FIRST, {"name": "x", "count": 1}), None, "its producer had no schema"),
    ("Avro", avro(FIRST, {"name": "x", "count": 1}), 9, "the topic has no schema of version 9"),
    ("Json", b'{"name": "x", "count": "7"}', 0, r"Expected `int \| null`, got `str` - at `\$.count`"),
    ("Json", b'{"name": "x", "count": 5000000000}', 0, r"Expected `int` <= 2147483647 - at `\$.count`"),
    ("Json", b'{"name": "x"}{}', 0, "JSON is malformed|Extra data"),
    ("Json", b"[]", 0, "Expected `object`, got `array`"),
    ("Json", b"", 0, "truncated|Expecting value"),
    ("Json", b'{"name": "\xff"}', 0, "utf-8|UTF-8"),
    ("Json", b'{"a":' * 5000, 0, "recursion|truncated"),
]


@pytest.mark.parametrize(("form", "payload", "version", "words"), BAD)
def test_a_value_that_does_not_fit(
    tmp_path: Path, form: str, payload: bytes, version: int | None, words: str
) -> None:
    good = {"name": "nails", "count": 7}
    right = json.dumps(good).encode() if form == "Json" else avro(FIRST, good)
    fill(tmp_path, [schema(form, FIRST)], [(right, 0), (payload, version), (right, 0)])
    number = "without a version" if version is None else f"version {version}"
    told = rf"orders, position 1: the value does not fit its schema \({number}\): .*({words})"
    with pytest.raises(IncompatibleSchema, match=rf"{told}.*; set mode=permissive to read it as null"):
        values(tmp_path, OLDEST)
    found = rows(str(tmp_path), OLDEST, ["corrupt"], mode="permissive")
    assert [row["value"] for row in found] == [good, None, good]
    assert [row["corrupt"] is None for row in found] == [True, False, True]
    assert values(tmp_path, OLDEST, mode="permissive")[1] is None, "also without that column"


def test_json_without_a_version_and_beyond_json(tmp_path: Path) -> None:
    tree = definition(("x", "double"), ("y", "double"))
    made = [(b'{"x": NaN, "y": 2}', 0), (b'{"x": 1}', None), (b'{"x": 1, "z": [1]}', 0)]
    fill(tmp_path, [schema("Json", tree)], made)
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    first, *others = values(tmp_path, kind)
    assert str(first) == "{'x': nan, 'y': 2.0}"
    assert others == [{"x": 1.0, "y": None}] * 2
    fill(tmp_path, [schema("Json", definition(("x", "float")))], [(b'{"x": NaN}', 0)], "floats")
    (single,) = values(tmp_path, pa.struct([("x", pa.float32())]), topic="floats")  # not by Arrow
    assert str(single) == "{'x': nan}"


def test_plain_json_is_decoded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [(b'{"name": "x", "count": %d}' % number, 0) for number in range(100)]
    fill(tmp_path, [schema("Json", FIRST)], made)
    monkeypatch.setattr(typed_values._Version, "value", None)
    assert [each["count"] for each in values(tmp_path, EXACT)] == [*range(100)]


def test_plain_and_other_versions_together(tmp_path: Path) -> None:
    """A version that Arrow may decode does not speak for the others."""
    wide = definition(("name", "string"), ("count", "long"))
    made = [(b'{"name": "x", "count": 1}', 0), (b'{"name": "y", "count": 5000000000}', 1)]
    fill(tmp_path, [schema("Json", FIRST), schema("Json", wide)], made)
    assert [each["count"] for each in values(tmp_path, OLDEST)] == [1, 5_000_000_000]
    fill(tmp_path, [], [(b'{"name": "z", "count": 5000000000}', 0)])
    with pytest.raises(IncompatibleSchema, match=r"position 2: .*version 0.*2147483647"):
        values(tmp_path, OLDEST)


def test_an_encrypted_value_is_not_decoded(tmp_path: Path) -> None:
    right, keys = b'{"name": "x", "count": 1}', pb.EncryptionKeys(key="k", value=b"secret")
    fill(tmp_path, [schema("Json", FIRST)], [(right, 0)])
    entry = message(right, 0, 1, encryption_keys=keys.SerializeToString())
    asyncio.run(TypedTopics(tmp_path).append("orders", [entry]))
    found = rows(str(tmp_path), EXACT, ["corrupt"], mode="permissive")
    assert [row["value"] is None for row in found] == [False, True]
    assert "version 0): it is encrypted" in found[1]["corrupt"]


def test_a_version_that_is_added_while_the_topic_is_read(tmp_path: Path) -> None:
    """The decoder looks again, and only for a version that it does not know."""
    known, looks = [schema("Json", FIRST).SerializeToString()], [0]

    class Topic:
        name = "orders"

        def schemas(self) -> tuple[bytes, ...]:
            looks[0] += 1
            return tuple(known)

    topic: Any = Topic()
    typed = typed_values.TypedValues(topic, OLDEST)

    def decoded(version: int) -> list[Any]:
        given = {"value": pa.array([b'{"count": 7}']), "encryption": pa.nulls(1, pa.binary())}
        batch = pa.RecordBatch.from_pydict({**given, "schemaVersion": [version], "position": [0]})
        found, faults = typed.decode(batch)
        return [found.to_pylist()[0], *faults.values()]

    assert decoded(0) == [{"name": None, "count": 7}]
    assert "no schema of version 1" in decoded(1)[1]
    known += [schema("Json", SECOND).SerializeToString()] * 2
    assert decoded(2) == [{"name": None, "count": 7}]
    before = looks[0]
    assert decoded(0) == decoded(2) == [{"name": None, "count": 7}]
    assert looks[0] == before


def test_versions_of_other_types(tmp_path: Path) -> None:
    """A version whose types do not fit the column refuses its messages only."""
    text = definition(("name", "string"), ("count", "string"))
    right = avro(FIRST, {"name": "x", "count": 1})
    made = [(right, 0), (avro(text, {"name": "x", "count": "1"}), 1), (right, 2), (b"abc", 3)]
    fill(tmp_path, [schema("Avro", each) for each in (FIRST, text)], made)
    kind = pa.struct([("name", pa.string()), ("count", pa.int32())])
    with pytest.raises(
        BadConfiguration, match=r"orders does not fit: value.count is string, and the column is int32"
    ):
        values(tmp_path, kind)
    fill(
        tmp_path,
        [schema("Avro", definition(("name", "string"), ("count", "int"), ("more", ["null", "int"])))],
        [],
    )
    fill(tmp_path, [schema("String", None), schema("Avro", FIRST | {"namespace": "other"})], [])
    found = rows(str(tmp_path), kind, ["corrupt"], mode="permissive")
    assert [row["value"] is None for row in found] == [False, True, True, True]
    assert "value.count is string, and the column is int32" in found[1]["corrupt"]
    assert "it is of type String" in found[3]["corrupt"]


REFUSED: list[tuple[Any, str]] = [
    ([], "orders has no schema; add one"),
    ([schema("String", None)], "of type String; values of JSON and Avro become columns"),
    ([schema("Avro", definition(("u", ["int", "string"])))], "value.u is a union of int and string"),
    ([schema("Json", definition(("n", "null")))], "value.n is always null"),
    ([schema("Json", definition())], "value has no fields"),
    ([schema("Avro", definition(("self", ["null", "Order"])))], "value.self contains itself"),
]


@pytest.mark.parametrize(("schemas", "words"), REFUSED)
def test_schemas_that_become_no_columns(tmp_path: Path, schemas: Any, words: str) -> None:
    fill(tmp_path, schemas, [(b"x", None)])
    with pytest.raises(BadConfiguration, match=f"valueFormat=schema: .*{words}"):
        column(str(tmp_path))


def test_several_topics(tmp_path: Path) -> None:
    fill(tmp_path, [schema("Avro", FIRST)], [])
    fill(tmp_path, [schema("Avro", FIRST), schema("Avro", SECOND)], [], "bills")
    with pytest.raises(
        BadConfiguration, match=r"the schemas of .*/bills and .*/orders differ: struct<.*colour"
    ):
        column(str(tmp_path), topic="", topics="orders,bills")
    with pytest.raises(BadConfiguration, match="no topic exists yet, so the type of value is unknown"):
        column(str(tmp_path), topic="nothing")
    with pytest.raises(BadConfiguration, match="has a field 'color'; check the name"):
        values(tmp_path, pa.struct([("color", pa.string())]))


def test_hostile_definitions() -> None:
    """Parts are counted before use. Arrays of elements without content are not decoded."""
    kinds: Any = "int"
    for level in range(40):
        each = f"L{level}"
        kinds = definition(("a", kinds), ("b", "int" if kinds == "int" else kinds["name"]), name=each)
    deep = Definition(json.dumps(kinds).encode()).shape
    assert f"has more than {PARTS_MAX:,} parts" in str(deep.untyped())
    nothing = definition(("n", {"type": "array", "items": definition(name="Empty")}))
    assert Definition(json.dumps(nothing).encode()).refused
    for wrong in (b"", b"[]", b'"int"', b'{"type": "record"}', b'{"type": "x"}', b"[" * 9999):
        with pytest.raises(BadSchema, match="its definition is"):
            Definition(wrong)


# -- the file of schemas -------------------------------------------------------------------------------


def published(path: Path, name: str = ORDERS) -> int:
    from holdfast.columns.files import FilePlace

    return len(FilePlace(str(path)).open(name).schemas())


def test_the_file_follows_the_topic(tmp_path: Path) -> None:
    fill(tmp_path, [schema("Avro", FIRST)], [(b"x", 0)])
    file = tmp_path / schemas_path(ORDERS)
    assert published(tmp_path) == 1
    file.unlink()
    fill(tmp_path, [], [])
    assert published(tmp_path) == 1, "a broker writes it again"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(Corrupt, match=r"orders: .* does not decode.*restart the broker"):
        published(tmp_path)
    fill(tmp_path, [schema("Avro", SECOND)], [])
    assert published(tmp_path) == 2
    assert read_schemas(tmp_path, ORDERS, b"another") == (), "of a topic that was deleted"

    async def delete() -> None:
        async with Broker.open(tmp_path) as broker:
            await broker.admin.delete_topic("orders", force=True)

    asyncio.run(delete())
    assert not file.exists()
    fill(tmp_path, [], [(b"x", None)])
    assert published(tmp_path) == 0


def test_partitions_share_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with Broker.open(tmp_path) as broker:
            await broker.admin.create_partitioned_topic("parts", 2)

    asyncio.run(run())
    fill(
        tmp_path, [schema("Avro", FIRST)], [(avro(FIRST, {"name": "x", "count": 1}), 0)], "parts-partition-0"
    )
    fill(tmp_path, [], [(avro(FIRST, {"name": "y", "count": 2}), 0)], "parts-partition-1")
    found = values(tmp_path, pa.struct([("name", pa.string())]), topic="parts")
    assert sorted(each["name"] for each in found) == ["x", "y"]
