"""Check the cost of schemas: long names, large definitions, many comparisons."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from google.protobuf import descriptor_pb2

from holdfast.errors import BadSchema, IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import definition, native
from holdfast.server.registry.compatibility import require_compatible
from holdfast.server.registry.definition import DEFINITION_BYTES_MAX, require_sound

Field = descriptor_pb2.FieldDescriptorProto
LONG = 200_000


@contextmanager
def at_most(peak: int) -> Iterator[None]:
    """Assert that the block never has more memory than this."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()


def avro(**definition: object) -> pb.Schema:
    data = json.dumps({"type": "record", "name": "Order", "fields": [], **definition}).encode()
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=data)


def described(file: descriptor_pb2.FileDescriptorProto, root: str) -> pb.Schema:
    encoded = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    data = json.dumps({"fileDescriptorSet": encoded, "rootMessageTypeName": root})
    return pb.Schema(name="s", type=pb.Schema.ProtobufNative, schema_data=data.encode())


# -- comparisons ---------------------------------------------------------------------------------------


def circle(length: int, field_name: str = "next", more: int = 0) -> pb.Schema:
    """Return messages of which each has a field of the next one.

    The last one has further fields of the first.
    """
    file = descriptor_pb2.FileDescriptorProto(name="f")
    message, optional, number = Field.TYPE_MESSAGE, Field.LABEL_OPTIONAL, 1
    for at in range(length):
        fields = file.message_type.add(name=f"m{at}").field
        next_ = f"m{(at + 1) % length}"
        fields.add(name=field_name, number=number, type=message, label=optional, type_name=next_)
    for at in range(more):
        fields.add(name="back", number=2 + at, type=message, label=optional, type_name="m0")
    return described(file, "m0")


def circles_are_compared_until_a_limit() -> None:
    """Their pairs are as many as the product of their lengths."""
    with pytest.raises(IncompatibleSchema, match="comparisons"):
        require_compatible("FULL", [circle(601)], circle(600))
    require_compatible("FULL", [circle(300)], circle(300))


def long_ways_are_not_repeated() -> None:
    schema = circle(400, "x" * 250, more=5_000)
    with at_most(40 << 20):
        require_compatible("FULL", [schema], schema)


# -- names ---------------------------------------------------------------------------------------------


def package(length: int) -> pb.Schema:
    file = descriptor_pb2.FileDescriptorProto(name="f", package="p" * length)
    for at in range(1000):
        file.message_type.add(name=f"m{at}")
    return described(file, f"{file.package}.m0")


def nest(length: int) -> pb.Schema:
    file = descriptor_pb2.FileDescriptorProto(name="f")
    message = file.message_type.add(name="m" * length)
    for at in range(1000):
        message.nested_type.add(name=f"m{at}")
    return described(file, message.name)


def namespace(length: int) -> pb.Schema:
    return _named(namespace="n" * length)


def dotted(length: int) -> pb.Schema:
    return _named(name="n" * length + ".Order")


def _named(**name: str) -> pb.Schema:
    inner = [
        {"name": f"f{at}", "type": {"type": "record", "name": f"r{at}", "fields": []}} for at in range(500)
    ]
    return avro(fields=inner, **name)


def refused(made: Callable[[int], pb.Schema]) -> None:
    require_sound(made(900))
    schema = made(LONG)
    with at_most(20 << 20), pytest.raises(BadSchema, match="characters"):
        require_sound(schema)


def long_names_of_types_are_refused() -> None:
    refused(namespace)
    refused(dotted)


def long_names_of_messages_are_refused() -> None:
    refused(package)
    refused(nest)


# -- sizes ---------------------------------------------------------------------------------------------


def large_definitions_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for at in range(20):
            require_sound(avro(name=f"Large{at}", doc="d" * 500_000))
        assert tracemalloc.get_traced_memory()[0] < 5 << 20
    finally:
        tracemalloc.stop()


def many_parts_are_not_looked_at() -> None:
    """A definition with too many parts is refused at the first level that has them."""
    lists = b"[" + b"[]," * 300_000 + b"[]]"
    files = descriptor_pb2.FileDescriptorSet(file=[descriptor_pb2.FileDescriptorProto()] * 300_000)
    encoded = base64.b64encode(files.SerializeToString()).decode()
    data = json.dumps({"fileDescriptorSet": encoded, "rootMessageTypeName": "m"}).encode()
    for type_, definition_, module, looks in (
        (pb.Schema.Json, lists, definition, "_inner"),
        (pb.Schema.ProtobufNative, data, native, "_text"),
    ):
        with (
            mock.patch.object(module, looks, wraps=getattr(module, looks)) as looked,
            pytest.raises(BadSchema, match=r"300,00\d .*; at most 5,000 are allowed"),
        ):
            require_sound(pb.Schema(name="s", type=type_, schema_data=definition_))
        assert looked.call_count < 10


def size_is_checked_before_parsing() -> None:
    for type_ in (pb.Schema.Avro, pb.Schema.ProtobufNative, pb.Schema.KeyAndValue):
        schema = pb.Schema(name="s", type=type_, schema_data=b" " * (DEFINITION_BYTES_MAX + 1))
        with pytest.raises(BadSchema, match="at most 1,048,576 are allowed"):
            require_sound(schema)


CHECKS = [
    circles_are_compared_until_a_limit,
    long_ways_are_not_repeated,
    long_names_of_types_are_refused,
    long_names_of_messages_are_refused,
    large_definitions_are_not_kept,
    many_parts_are_not_looked_at,
    size_is_checked_before_parsing,
]
