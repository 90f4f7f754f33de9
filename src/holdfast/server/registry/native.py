"""Schemas of type PROTOBUF_NATIVE: descriptors of messages, and which changes a reader understands."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from holdfast.errors import BadSchema

Message = descriptor_pb2.DescriptorProto
Field = descriptor_pb2.FieldDescriptorProto

MESSAGES_MAX = 5_000
NAME_LENGTH_MAX = 1_024
"""Characters of the full name of a message: that of each one repeats those around it."""
KEPT_BYTES_MAX = 16 << 10
"""Larger descriptors are parsed each time: what is kept of all clients' schemas stays small."""

_ALIKE = (
    {
        Field.TYPE_INT32,
        Field.TYPE_UINT32,
        Field.TYPE_INT64,
        Field.TYPE_UINT64,
        Field.TYPE_BOOL,
        Field.TYPE_ENUM,
    },
    {Field.TYPE_SINT32, Field.TYPE_SINT64},
    {Field.TYPE_FIXED32, Field.TYPE_SFIXED32},
    {Field.TYPE_FIXED64, Field.TYPE_SFIXED64},
    {Field.TYPE_STRING, Field.TYPE_BYTES},
)
"""Types with one encoding: a reader of one understands the others."""


SHOWN_MAX = 64
"""Names of fields, one in the other, that an error shows."""


class _Path(NamedTuple):
    """The field in which messages are compared, and those around it."""

    outer: _Path | None
    """None: it is the message itself."""
    name: str


_TOP = _Path(None, "")


class Descriptors:
    """The messages of a schema, by full name, and the one that it is about."""

    def __init__(self, root: str, messages: dict[str, Message]) -> None:
        self.root = root
        self.messages = messages


def root(data: bytes) -> Descriptors:
    """Return the descriptors in the data of a schema.

    Raises:
        BadSchema: they are not there, not complete, or too large to compare.
    """
    return (_kept if len(data) <= KEPT_BYTES_MAX else _parsed)(data)


def _parsed(data: bytes) -> Descriptors:
    what = "the definition of a PROTOBUF_NATIVE schema"
    try:
        parts = json.loads(data)
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(parts["fileDescriptorSet"], validate=True)
        )
        name = str(parts["rootMessageTypeName"])
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error, DecodeError) as error:
        raise BadSchema(
            f"{what} needs fileDescriptorSet (base64) and rootMessageTypeName: {error!r}"
        ) from None
    if len(files.file) > MESSAGES_MAX:  # each of them is an object, when it is looked at
        raise BadSchema(f"{what} has {len(files.file):,} files; at most {MESSAGES_MAX:,} are allowed")
    messages: dict[str, Message] = {}
    left: list[tuple[str, Message]] = []
    for file in files.file:
        package = _text(file.package)  # one text for all: each access makes another one
        left += [(package, each) for each in file.message_type]
    while left:
        outer, message = left.pop()
        own = _text(message.name)
        full = f"{outer}.{own}" if outer else own
        if len(full) > NAME_LENGTH_MAX:
            raise BadSchema(
                f"{what} has a message whose full name has {len(full):,} characters, {full[:32]!r} and more; "
                f"at most {NAME_LENGTH_MAX:,} are allowed"
            )
        messages[full] = message
        if len(messages) > MESSAGES_MAX:
            raise BadSchema(f"{what} has more than {MESSAGES_MAX:,} messages, the most that are allowed")
        left.extend((full, each) for each in message.nested_type)
    if name not in messages:
        raise BadSchema(f"{what} has no message {name[:128]!r}, which its rootMessageTypeName names")
    return Descriptors(name, messages)


_kept = lru_cache(maxsize=64)(_parsed)


def misfit(reader: Descriptors, writer: Descriptors, take: Callable[[int], None]) -> str | None:
    """Return why a reader does not understand what a writer writes; None: it does.

    `take` is called with the cost of each comparison of two messages; it may raise. Two circles of messages
    make as many pairs as the product of their lengths.
    """
    if reader.root != writer.root:
        return f"message {reader.root} is not {writer.root}"
    left, seen = [(reader.root, writer.root, _TOP)], {(reader.root, writer.root)}
    while left:
        ours, theirs, path = left.pop()
        if ours not in reader.messages or theirs not in writer.messages:
            continue
        fields = writer.messages[theirs].field
        take(1 + (len(fields) + len(reader.messages[ours].field)) // 10)
        written = {field.number: field for field in fields}
        for field in reader.messages[ours].field:
            other = written.get(field.number)
            if other is None:
                if field.label == Field.LABEL_REQUIRED:
                    name = _named(path, field)
                    return f"field {name} ({field.number}) is required, and the other schema does not have it"
                continue
            if field.type != other.type and not any({field.type, other.type} <= kinds for kinds in _ALIKE):
                types = f"{_shown(field)}, and {_shown(other)} in the other schema"
                return f"field {_named(path, field)} ({field.number}) is {types}"
            if (field.label == Field.LABEL_REPEATED) != (other.label == Field.LABEL_REPEATED):
                return f"field {_named(path, field)} ({field.number}) is repeated in one of the schemas only"
            if field.label == Field.LABEL_REQUIRED and other.label != Field.LABEL_REQUIRED:
                return (
                    f"field {_named(path, field)} ({field.number}) is required, and not in the other schema"
                )
            if field.type_name and field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP):
                pair = _text(field.type_name).lstrip("."), _text(other.type_name).lstrip(".")
                if pair not in seen:
                    seen.add(pair)
                    left.append((*pair, _Path(path, _text(field.name))))
    return None


def _named(path: _Path, field: Field) -> str:
    """Return the name of a field behind those of the fields around it."""
    names = [_text(field.name)[:128]]
    while path.outer is not None and len(names) < SHOWN_MAX:
        names.append(path.name[:128])
        path = path.outer
    return ("…" if path.outer is not None else "") + ".".join(reversed(names))


def _shown(field: Field) -> str:
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _text(value: str | bytes) -> str:
    """Return a text of a descriptor; protobuf returns bytes for one that is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="backslashreplace")
