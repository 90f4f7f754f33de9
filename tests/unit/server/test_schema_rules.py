"""Rules of the registry: definitions that are sound, equal, or may follow each other."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from holdfast.broker import Strategy
from holdfast.errors import BadSchema, IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import compatibility
from holdfast.server.registry.compatibility import misfit, require_compatible
from holdfast.server.registry.definition import (
    DEPTH_MAX,
    NODES_MAX,
    TYPES,
    identity,
    pair,
    require_sound,
)
from tests.kit.server import schema_costs as costs

Field = descriptor_pb2.FieldDescriptorProto


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def record(
    *fields: dict[str, Any], type_: pb.Schema.Type = pb.Schema.Avro, name: str = "Order", **more: Any
) -> pb.Schema:
    definition = {"type": "record", "name": name, "fields": list(fields), **more}
    return pb.Schema(name="s", type=type_, schema_data=json.dumps(definition).encode())


def plain(type_: pb.Schema.Type) -> pb.Schema:
    return pb.Schema(name="s", type=type_, schema_data=b"")


def of_pair(key: pb.Schema, value: pb.Schema, key_type: str, value_type: str) -> pb.Schema:
    parts = [len(each.schema_data).to_bytes(4, "big") + each.schema_data for each in (key, value)]
    schema = pb.Schema(name="s", type=pb.Schema.KeyAndValue, schema_data=b"".join(parts))
    schema.properties.add(key="key.schema.type", value=key_type)
    schema.properties.add(key="value.schema.type", value=value_type)
    return schema


def native(
    *fields: tuple[str, int, Field.Type.ValueType, Field.Label.ValueType], root: str = "shop.Order"
) -> pb.Schema:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop")
    message = file.message_type.add(name="Order")
    for name, number, type_, label in fields:
        message.field.add(name=name, number=number, type=type_, label=label)
    encoded = base64.b64encode(files.SerializeToString()).decode()
    data = json.dumps(
        {"fileDescriptorSet": encoded, "rootMessageTypeName": root, "rootFileDescriptorName": "shop.proto"}
    )
    return pb.Schema(name="s", type=pb.Schema.ProtobufNative, schema_data=data.encode())


ONE = record(field("x", "int"))
REQUIRED = record(field("x", "int"), field("y", "string"))
OPTIONAL = record(field("x", "int"), field("y", ["null", "string"], default=None))
OTHER = record(field("x", "string"))
WIDER = record(field("x", "long"))


def allowed(strategy: Strategy, known: list[pb.Schema], new: pb.Schema) -> bool:
    try:
        require_compatible(strategy, known, new)
    except IncompatibleSchema:
        return False
    return True


@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        ("ALWAYS_COMPATIBLE", "required optional other wider"),
        ("ALWAYS_INCOMPATIBLE", ""),
        ("BACKWARD", "optional wider"),
        ("BACKWARD_TRANSITIVE", "optional wider"),
        ("FORWARD", "required optional"),
        ("FORWARD_TRANSITIVE", "required optional"),
        ("FULL", "optional"),
        ("FULL_TRANSITIVE", "optional"),
    ],
)
def test_each_strategy(strategy: Strategy, after: str) -> None:
    changes = {"required": REQUIRED, "optional": OPTIONAL, "other": OTHER, "wider": WIDER}
    assert [name for name, new in changes.items() if allowed(strategy, [ONE], new)] == after.split()
    for first in changes.values():
        assert allowed(strategy, [], first)


def test_transitive_strategies_compare_all_versions() -> None:
    known = [ONE, OPTIONAL]
    assert allowed("BACKWARD", known, REQUIRED) is False
    known = [record(field("a", "int")), record()]
    for strategy, possible in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)):
        assert allowed(strategy, known, record(field("a", "string", default=""))) is possible  # type: ignore[arg-type]
    with pytest.raises(
        IncompatibleSchema, match=r"messages of version 0: field a: a reader of string cannot"
    ):
        require_compatible("BACKWARD_TRANSITIVE", known, record(field("a", "string", default="")))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (ONE, REQUIRED, r"field y: the reader has no default"),
        (ONE, OTHER, r"field x: a reader of string cannot decode int"),
        (
            record(field("z", ["null", {"type": "record", "name": "In", "fields": [field("q", "int")]}])),
            record(field("z", ["null", {"type": "record", "name": "In", "fields": [field("q", "boolean")]}])),
            r"field z\.q: a reader of boolean cannot decode int",
        ),
        (
            record(field("a", {"type": "array", "items": "int"})),
            record(field("a", {"type": "array", "items": "string"})),
            r"field a\[\]: ",
        ),
        (
            record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
            record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]})),
            r"field e: the reader has no symbol B",
        ),
        (
            record(field("y", ["null", "string"])),
            record(field("y", "string")),
            r"field y: .* cannot decode a union of null, string",
        ),
        (ONE, record(field("x", "int"), name="Bill"), r"the record is named Bill, and Order"),
        (
            plain(pb.Schema.String),
            plain(pb.Schema.Int32),
            r"messages of type STRING, and the new schema is INT32",
        ),
        (ONE, record(field("x", "int"), type_=pb.Schema.Json), r"type AVRO, and the new schema is JSON"),
    ],
)
def test_the_text_names_what_does_not_fit(old: pb.Schema, new: pb.Schema, words: str) -> None:
    with pytest.raises(IncompatibleSchema, match=words):
        require_compatible("BACKWARD", [old], new)


def test_pairs_are_compared_part_by_part() -> None:
    key = plain(pb.Schema.String)
    old, new, bad = (of_pair(key, value, "STRING", "AVRO") for value in (ONE, OPTIONAL, OTHER))
    assert [each.type for each in pair(old)] == [pb.Schema.String, pb.Schema.Avro]
    assert allowed("FULL", [old], new)
    with pytest.raises(IncompatibleSchema, match=r"value: field x"):
        require_compatible("FULL", [old], bad)
    with pytest.raises(IncompatibleSchema, match=r"key: INT32 is not STRING"):
        require_compatible("FULL", [old], of_pair(plain(pb.Schema.Int32), ONE, "INT32", "AVRO"))


def test_protobuf_descriptors() -> None:
    optional, required = Field.LABEL_OPTIONAL, Field.LABEL_REQUIRED
    old = native(("id", 1, Field.TYPE_INT32, optional))
    assert allowed(
        "FULL", [old], native(("id", 1, Field.TYPE_INT64, optional), ("name", 2, Field.TYPE_STRING, optional))
    )
    for bad, words in (
        (native(("id", 1, Field.TYPE_STRING, optional)), r"field id \(1\) is string, and int32"),
        (
            native(("id", 1, Field.TYPE_INT32, optional), ("n", 2, Field.TYPE_STRING, required)),
            r"field n \(2\) is required",
        ),
        (native(("id", 1, Field.TYPE_INT32, Field.LABEL_REPEATED)), r"repeated"),
    ):
        require_sound(bad)
        with pytest.raises(IncompatibleSchema, match=words):
            require_compatible("FULL", [old], bad)
    with pytest.raises(BadSchema, match=r"no message 'shop.Bill'"):
        require_sound(native(root="shop.Bill"))


def nested(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth


@pytest.mark.parametrize(
    ("type_", "data", "words"),
    [
        (pb.Schema.Avro, b"{", "not valid as Avro"),
        (pb.Schema.Json, b"\xff", "not valid as Avro"),
        (pb.Schema.Json, b'"nope"', "not valid as Avro"),
        (pb.Schema.Avro, b'{"type":"record"}', "not valid as Avro"),
        (pb.Schema.Avro, nested(2 * DEPTH_MAX), "nested too deeply"),
        (pb.Schema.Avro, b"[" * 100_000, "nested too deeply"),
        (pb.Schema.Avro, json.dumps(["int"] * NODES_MAX).encode(), "has 5,001 parts"),
        (pb.Schema.String, b"x", "has no definition, but 1 bytes"),
        (pb.Schema.AutoConsume, b"", "cannot be AUTO_CONSUME"),
        (pb.Schema.KeyAndValue, b"\0\0\0\5abc", "key schema of a KEY_VALUE schema ends"),
        (pb.Schema.KeyAndValue, b"\0\0\0\0" * 3, "behind its value schema"),
        (pb.Schema.ProtobufNative, b"{}", "needs fileDescriptorSet"),
        (
            pb.Schema.ProtobufNative,
            b'{"fileDescriptorSet": "!", "rootMessageTypeName": "a"}',
            "needs fileDescriptorSet",
        ),
    ],
)
def test_definitions_that_are_refused(type_: pb.Schema.Type, data: bytes, words: str) -> None:
    with pytest.raises(BadSchema, match=words):
        require_sound(pb.Schema(name="s", type=type_, schema_data=data))


def test_definitions_that_are_sound() -> None:
    require_sound(pb.Schema(name="s", type=pb.Schema.Avro, schema_data=nested(DEPTH_MAX // 2)))
    java = b'{"type":"record","name":"Inner","namespace":"com.shop.Outer$","fields":[]}'
    require_sound(pb.Schema(name="s", type=pb.Schema.Avro, schema_data=java))
    for name, type_ in TYPES.items():
        if name not in (
            "JSON",
            "AVRO",
            "PROTOBUF",
            "PROTOBUF_NATIVE",
            "KEY_VALUE",
            "AUTO_CONSUME",
            "EXTERNAL",
        ):
            require_sound(plain(type_))


def test_what_makes_a_schema_the_same() -> None:
    swapped = b'{"fields":[{"type":"int","name":"x","doc":"the x"}],"name":"Order","type":"record"}'
    assert identity(ONE) == identity(pb.Schema(name="t", type=pb.Schema.Avro, schema_data=swapped))
    assert identity(ONE) != identity(WIDER)
    assert identity(ONE) != identity(record(field("x", "int"), type_=pb.Schema.Json))
    commented = record(field("doc", "int"))  # a field may have this name
    assert identity(commented) != identity(record())


def test_a_comparison_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "STEPS_MAX", 1000)

    def of(prefix: str) -> pb.Schema:
        branches = [{"type": "record", "name": f"{prefix}{number}", "fields": []} for number in range(40)]
        return record(field("u", branches))

    require_sound(of("A"))
    with pytest.raises(IncompatibleSchema, match=r"need more than 1,000 comparisons"):
        require_compatible("FULL", [of("A")], of("B"))


def test_what_a_default_calls_doc_is_no_comment() -> None:
    """Another default is another schema: it decides what readers get."""
    one, other, again = (
        record(field("m", {"type": "map", "values": "string"}, default={"doc": each}, doc=comment))
        for each, comment in (("a", "x"), ("b", "x"), ("a", "y"))
    )
    assert identity(one) != identity(other)
    assert identity(one) == identity(again)


def test_a_reader_that_has_an_alias() -> None:
    renamed = record(field("z", "int", aliases=["x"]))
    assert misfit(renamed, ONE) is None
    assert "field x" in str(misfit(ONE, renamed))


# -- what a definition may cost ------------------------------------------------------------------------


@pytest.mark.parametrize("check", costs.CHECKS)
def test_a_definition_costs_no_more_than_its_size(check: Callable[[], None]) -> None:
    check()
