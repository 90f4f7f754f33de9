"""Definitions of schemas as clients send them: checked, compared, and shown.

A schema has a type, a name, properties and data. The data of a record type is an Avro definition. The data of
a pair are two schemas, those of Protobuf native are descriptors. Primitive types have none.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from holdfast.errors import BadSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import avro_definition, native

RECORDS = frozenset({pb.Schema.Json, pb.Schema.Avro, pb.Schema.Protobuf})
"""Types whose data is an Avro definition."""
UNREGISTERED = frozenset({pb.Schema.Bytes, pb.Schema.AutoConsume})
"""Types that name no schema: plain bytes, and the schema that the topic has."""
NAMES: dict[int, str] = {
    **{number: name.upper() for name, number in pb.Schema.Type.items()},
    pb.Schema.Bytes: "BYTES",
    pb.Schema.Bool: "BOOLEAN",
    pb.Schema.KeyAndValue: "KEY_VALUE",
    pb.Schema.LocalDate: "LOCAL_DATE",
    pb.Schema.LocalTime: "LOCAL_TIME",
    pb.Schema.LocalDateTime: "LOCAL_DATE_TIME",
    pb.Schema.ProtobufNative: "PROTOBUF_NATIVE",
    pb.Schema.AutoConsume: "AUTO_CONSUME",
}
"""Names of types in Pulsar's administration."""
TYPES: dict[str, pb.Schema.Type] = {name: cast("pb.Schema.Type", number) for number, name in NAMES.items()}
PART_TYPE = "{}.schema.type"
"""The property of a pair with the type of its key, or of its value."""
NOTHING = (b"", b"null")
"""The definitions of a primitive type, which has none: Python's client writes the second one."""
DEFINITION_BYTES_MAX = 1 << 20
"""Bytes of a definition that is parsed at all; what a topic stores has limits of its own."""
NODES_MAX = 5_000
"""Parts of an Avro definition: types, fields and branches of unions."""
DEPTH_MAX = 64
NAME_LENGTH_MAX = 1_024
"""Characters of a name in a definition. A namespace is a part of the name of each type in it."""
KEPT_BYTES_MAX = 16 << 10
"""Larger definitions are parsed each time: what is kept of all clients' definitions stays small."""


def shown(type_: int) -> str:
    """Return the name of a type."""
    return NAMES[type_]


def require_sound(schema: pb.Schema) -> None:
    """Raise BadSchema if the data of a schema is not of its type.

    Example:
        >>> require_sound(pb.Schema(name="s", type=pb.Schema.String, schema_data=b""))
    """
    if len(schema.schema_data) > DEFINITION_BYTES_MAX:  # before it is parsed
        raise BadSchema(
            f"a schema of type {shown(schema.type)} has {len(schema.schema_data):,} bytes; "
            f"at most {DEFINITION_BYTES_MAX:,} are allowed"
        )
    if schema.type in RECORDS:
        record(schema.schema_data, shown(schema.type))
    elif schema.type == pb.Schema.KeyAndValue:
        for part in pair(schema):
            require_sound(part)
    elif schema.type == pb.Schema.ProtobufNative:
        native.root(schema.schema_data)
    elif schema.type in (pb.Schema.AutoConsume, pb.Schema.External):
        raise BadSchema(f"a schema cannot be {shown(schema.type)}; give the type of the messages")
    elif schema.schema_data not in NOTHING:
        raise BadSchema(
            f"a schema of type {shown(schema.type)} has no definition, "
            f"but {len(schema.schema_data):,} bytes of it were sent; send none"
        )


def record(data: bytes, type_: str) -> avro_definition.Type:
    """Return the Avro definition in the data of a schema.

    Raises:
        BadSchema: it is not JSON, not an Avro definition, or too large to compare.
    """
    return (_kept if len(data) <= KEPT_BYTES_MAX else _parsed)(data, type_)


def _parsed(data: bytes, type_: str) -> avro_definition.Type:
    what = f"the definition of a schema of type {type_} is not valid as Avro"
    try:
        tree = json.loads(data.decode())
        nodes = _nodes(tree)
    except RecursionError:
        raise BadSchema(
            f"a schema of type {type_} is nested too deeply; at most {DEPTH_MAX} levels are allowed"
        ) from None
    except ValueError as error:
        raise BadSchema(f"{what}: {error}") from None
    if nodes > NODES_MAX:
        raise BadSchema(
            f"a schema of type {type_} has {nodes:,} parts or more; at most {NODES_MAX:,} are allowed"
        )
    try:
        return avro_definition.parsed(tree)
    except BadSchema as error:
        raise BadSchema(f"{what}: {error}") from None


_kept = lru_cache(maxsize=256)(_parsed)


def require_name(name: str) -> str:
    """Return a name in a definition unchanged.

    Example:
        >>> require_name("com.example.Order")
        'com.example.Order'

    Raises:
        BadSchema: it is too long, or no text: half of a surrogate pair, which no answer could name.
    """
    if not name.isascii() and any("\ud800" <= each <= "\udfff" for each in name):
        raise BadSchema(f"a name in a schema is not Unicode: {name[:32]!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise BadSchema(
            f"a name in a schema has {len(name):,} characters, {name[:32]!r} and more; "
            f"at most {NAME_LENGTH_MAX:,} are allowed"
        )
    return name


def _nodes(tree: Any) -> int:
    """Count the parts of a definition, to the level that has too many at most.

    Raises:
        BadSchema: it is nested too deeply, or a name is too long.
    """
    level, nodes = [tree], 0
    for _ in range(2 * DEPTH_MAX):  # an object and its list are two levels
        nodes += len(level)
        if nodes > NODES_MAX:
            return nodes
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return nodes
    raise RecursionError


def _inner(part: Any) -> list[Any]:
    if isinstance(part, Mapping):
        for each in ("name", "namespace"):
            if isinstance(name := part.get(each), str):
                require_name(name)
        return list(part.values())
    return part if isinstance(part, list) else []


def text(data: bytes) -> str:
    """Return a definition for people; one that is not text, in base64.

    Example:
        >>> text(b"null"), text(bytes([255]))
        ('', '/w==')
    """
    if data in NOTHING:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def joined(*parts: bytes) -> bytes:
    """Return the data of a pair: each definition behind its length."""
    return b"".join(len(each).to_bytes(4, "big") + each for each in parts)


def pair(schema: pb.Schema) -> tuple[pb.Schema, pb.Schema]:
    """Return the schemas of key and value.

    Raises:
        BadSchema: the data are not two schemas, each behind its length.
    """
    properties = {each.key: each.value for each in schema.properties}
    data, parts = schema.schema_data, []
    for side in ("key", "value"):
        size = int.from_bytes(data[:4], "big", signed=True)
        if len(data) < 4 or size > len(data) - 4:
            raise BadSchema(
                f"the {side} schema of a KEY_VALUE schema ends after {len(data)} bytes; send it whole"
            )
        size = max(size, 0)  # a length of -1: no definition
        part = pb.Schema(
            name=properties.get(f"{side}.schema.name", ""),
            type=_named(properties.get(PART_TYPE.format(side), "BYTES"), side),
            schema_data=data[4 : 4 + size],
        )
        parts.append(part)
        data = data[4 + size :]
    if data:
        raise BadSchema(
            f"a KEY_VALUE schema has {len(data)} bytes behind its value schema; send key and value only"
        )
    return parts[0], parts[1]


def _named(name: str, side: str) -> pb.Schema.Type:
    if name not in TYPES:
        raise BadSchema(f"a KEY_VALUE schema has a {side} of the unknown type {name[:64]!r}")
    if TYPES[name] == pb.Schema.KeyAndValue:
        raise BadSchema(f"a KEY_VALUE schema cannot have a {side} that is a KEY_VALUE, too")
    return TYPES[name]


def identity(schema: pb.Schema) -> tuple[int, object]:
    """Return a value that equal schemas share.

    Comments, and the order of members in JSON, make no difference.
    """
    if schema.type in RECORDS:
        return schema.type, json.dumps(_bare(json.loads(schema.schema_data)), sort_keys=True)
    if schema.type == pb.Schema.KeyAndValue:
        key, value = pair(schema)
        return schema.type, (identity(key), identity(value))
    return schema.type, b"" if schema.schema_data in NOTHING else schema.schema_data


def _bare(tree: Any) -> Any:
    """Return a definition without its comments.

    A default is a value: what it calls "doc" is not a comment.
    """
    if isinstance(tree, dict):
        return {
            name: part if name == "default" else _bare(part)
            for name, part in tree.items()
            if name != "doc" or not isinstance(part, str)
        }
    return [_bare(part) for part in tree] if isinstance(tree, list) else tree
