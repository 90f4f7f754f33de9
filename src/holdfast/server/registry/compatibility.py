"""Whether a schema may follow the others of its topic.

A *reader* is a schema that decodes messages of a *writer*. The strategy of the topic chooses the readers.

- BACKWARD: the new schema must read messages of the last one.
- FORWARD: the last schema must read messages of the new one.
- FULL: both. With the ending _TRANSITIVE: the same, with all schemas of the topic.
- ALWAYS_COMPATIBLE: all schemas are allowed. ALWAYS_INCOMPATIBLE: no other schema is.

Types that have no rules of evolution must stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import avro.schema
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)

from holdfast.broker import Strategy
from holdfast.errors import IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import native
from holdfast.server.registry.definition import RECORDS, pair, record, shown

DEFAULT: Strategy = "FULL"
STEPS_MAX = 100_000
"""Comparisons of two types for one schema. Unions within unions could need more than a machine has.

Of Protobuf, one is the comparison of up to ten fields."""


def require_compatible(strategy: Strategy, known: Sequence[pb.Schema], new: pb.Schema) -> None:
    """Raise IncompatibleSchema if a schema may not follow the known ones.

    The last one of them is the newest.

    Example:
        >>> text, number = (pb.Schema(name="s", type=each, schema_data=b"") for each in (1, 8))
        >>> require_compatible("FULL", [text], number)
        Traceback (most recent call last):
        holdfast.errors.IncompatibleSchema: the topic has messages of type STRING, and the new schema is INT32
    """
    if strategy == "ALWAYS_COMPATIBLE" or not known:
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema(
            "the strategy ALWAYS_INCOMPATIBLE allows only the schema that the topic has; change it first"
        )
    steps = _Steps()
    for version in range(len(known) - 1, -1, -1):
        old = known[version]
        if old.type != new.type:
            raise IncompatibleSchema(
                f"the topic has messages of type {shown(old.type)}, and the new schema is {shown(new.type)}"
            )
        whose = "the newest schema" if version == len(known) - 1 else f"version {version}"
        if not strategy.startswith("FORWARD"):
            _require(misfit(new, old, steps), f"it cannot read messages of {whose}", strategy)
        if not strategy.startswith("BACKWARD"):
            _require(misfit(old, new, steps), f"{whose} cannot read its messages", strategy)
        if not strategy.endswith("TRANSITIVE"):
            return


def _require(why: str | None, what: str, strategy: str) -> None:
    if why is not None:
        raise IncompatibleSchema(f"the schema is not compatible ({strategy}): {what}: {why}")


class _Steps:
    """Counts comparisons, so that a schema cannot occupy the broker."""

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def take(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise IncompatibleSchema(
                f"the schemas need more than {STEPS_MAX:,} comparisons; use smaller types, "
                "or ALWAYS_COMPATIBLE"
            )


class _Checker(ReaderWriterCompatibilityChecker):
    """The library's rules, with an end."""

    def __init__(self, steps: _Steps) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps = steps

    def get_compatibility(
        self,
        reader: avro.schema.Schema,
        writer: avro.schema.Schema,
        reference_token: str = "/",  # no password
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        self._steps.take()
        # Without locations: those of the library name places in a definition, and grow with each merge.
        return super().get_compatibility(reader, writer, reference_token, [])

    def fits(self, reader: avro.schema.Schema, writer: avro.schema.Schema) -> bool:
        return self.get_compatibility(reader, writer).compatibility is SchemaCompatibilityType.compatible


def misfit(reader: pb.Schema, writer: pb.Schema, steps: _Steps | None = None) -> str | None:
    """Return why a reader cannot decode messages of a writer; None: it can."""
    steps = steps or _Steps()
    if reader.type != writer.type:
        return f"{shown(reader.type)} is not {shown(writer.type)}"
    if reader.type in RECORDS:
        name = shown(reader.type)
        checker, ours, theirs = (
            _Checker(steps),
            record(reader.schema_data, name),
            record(writer.schema_data, name),
        )
        return None if checker.fits(ours, theirs) else _explained(checker, ours, theirs, "")
    if reader.type == pb.Schema.KeyAndValue:
        for side, ours_, theirs_ in zip(("key", "value"), pair(reader), pair(writer), strict=True):
            if why := misfit(ours_, theirs_, steps):
                return f"{side}: {why}"
        return None
    if reader.type == pb.Schema.ProtobufNative:
        return native.misfit(native.root(reader.schema_data), native.root(writer.schema_data), steps.take)
    return None


def _explained(checker: _Checker, reader: avro.schema.Schema, writer: avro.schema.Schema, path: str) -> str:
    """Return what does not fit, from the outside inwards, to the first field."""
    inside = _single(reader), _single(writer)
    if not checker.fits(*inside):  # else the difference is the union itself
        reader, writer = inside
    where = f"field {path}" if path else "the schema"
    if isinstance(reader, avro.schema.RecordSchema) and isinstance(writer, avro.schema.RecordSchema):
        return _explained_record(checker, reader, writer, path)
    for kind, inner in _INNER.items():
        if isinstance(reader, kind) and isinstance(writer, kind):
            ours, theirs = getattr(reader, inner), getattr(writer, inner)
            if not checker.fits(ours, theirs):
                return _explained(checker, ours, theirs, f"{path}[]")
    if isinstance(reader, avro.schema.EnumSchema) and isinstance(writer, avro.schema.EnumSchema):
        missing = sorted(set(writer.symbols) - set(reader.symbols))
        if missing:
            return f"{where}: the reader has no symbol {', '.join(missing)}, and no default"
    return f"{where}: a reader of {_type(reader)} cannot decode {_type(writer)}"


_INNER: dict[type, str] = {avro.schema.ArraySchema: "items", avro.schema.MapSchema: "values"}


def _explained_record(
    checker: _Checker, reader: avro.schema.RecordSchema, writer: avro.schema.RecordSchema, path: str
) -> str:
    written = writer.fields_dict
    for field in reader.fields:
        name = f"{path}.{field.name}" if path else field.name
        aliases = field.props.get("aliases") or []
        other = next((written[each] for each in (field.name, *aliases) if each in written), None)
        if other is None:
            if not field.has_default:
                return f"field {name}: the reader has no default for it, and the writer does not have it"
        elif not checker.fits(field.type, other.type):
            return _explained(checker, field.type, other.type, name)
    where = f"field {path}" if path else "the schema"
    return f"{where}: the record is named {reader.fullname}, and {writer.fullname} for the writer"


def _single(schema: avro.schema.Schema) -> avro.schema.Schema:
    """Return the branch of an optional value, so that its fields can be named."""
    branches = [each for each in getattr(schema, "schemas", [schema]) if each.type != "null"]
    return branches[0] if len(branches) == 1 else schema


def _type(schema: avro.schema.Schema) -> str:
    if isinstance(schema, avro.schema.UnionSchema):
        return "a union of " + ", ".join(_type(each) for each in schema.schemas)
    return str(getattr(schema, "fullname", schema.type))
