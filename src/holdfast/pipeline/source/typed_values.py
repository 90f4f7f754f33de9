"""Decode values by the schemas of their topics: JSON and Avro records, as structs.

The type of the column is that of the newest schema when the query begins, or the user's. A value is decoded
by the schema with which it was published. Fields that this one lacks are null, and those that only it has are
left out. A value that does not fit ends the query, or is null with the reason in `corrupt` (mode=permissive).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from holdfast.columns import TopicReader, open_place, topic_and_partition
from holdfast.errors import BadConfiguration, BadSchema, IncompatibleSchema
from holdfast.pipeline.source.avro_types import (
    Convert,
    Definition,
    Shape,
    converter,
    is_exact,
    json_type,
    misfit,
)
from holdfast.pipeline.source.offsets import Selection

if TYPE_CHECKING:
    pass

log = logging.getLogger("holdfast.pipeline.values")

NEEDED = ("value", "schemaVersion", "encryption", "position")
"""Columns from which values are decoded, and which an error names."""
_OTHERWISE = (
    "give the reader a schema with the type of value, or read it with valueFormat=json and valueSchema, "
    "or as bytes"
)
_WRONG = (ValueError, TypeError, LookupError, ArithmeticError, EOFError, msgspec.DecodeError, RecursionError)


class Registered:
    """A version of a topic's schema.

    Raises:
        BadSchema: it is not the definition of a JSON or Avro record; the text says what it is.
    """

    def __init__(self, data: bytes) -> None:
        from holdfast.protocol import pulsar_pb2 as pb

        schema = pb.Schema.FromString(data)
        if schema.type not in (pb.Schema.Json, pb.Schema.Avro):
            kind = pb.Schema.Type.Name(schema.type)
            raise BadSchema(f"it is of type {kind}; values of JSON and Avro become columns")
        self.json = schema.type == pb.Schema.Json
        self.definition = Definition(schema.schema_data)


# -- the type of the column ----------------------------------------------------------------------------


def schemas_of(options: dict[str, Any]) -> dict[str, tuple[bytes, ...]]:
    """Return the schemas of each topic of a query, by version.

    The last one is the newest. All partitions of a topic have the same ones.
    """
    place = open_place(options["path"], options["service.url"], options)
    known: dict[str, tuple[bytes, ...]] = {}
    for each in Selection(options).find(place):
        name, _ = topic_and_partition(each)
        known[name] = max(known.get(name, ()), place.open(each).schemas(), key=len)
    return known


def registered_type(options: dict[str, Any]) -> str:
    """Return the type of `value` by the newest schemas of the topics, as DDL.

    Raises:
        BadConfiguration: a topic has no schema, or none that becomes columns, or another one than the others.
    """
    found = schemas_of(options)
    if not found:
        raise BadConfiguration(
            f"valueFormat=schema: no topic exists yet, so the type of value is unknown; {_OTHERWISE}"
        )
    types = {name: _type_of(name, known) for name, known in found.items()}
    first, kind = next(iter(types.items()))
    for name, other in types.items():
        if other != kind:
            raise BadConfiguration(
                f"valueFormat=schema: the schemas of {first} and {name} differ: {kind} and {other}; "
                "give the reader a schema with the fields that both have"
            )
    return kind


def _newest(name: str, known: tuple[bytes, ...]) -> Shape:
    if not known or not known[-1]:  # the last one may stand for a deletion
        raise BadConfiguration(
            f"valueFormat=schema: {name} has no schema; add one (`holdfast schema upload`), or {_OTHERWISE}"
        )
    try:
        return Registered(known[-1]).definition.shape
    except BadSchema as error:
        raise BadConfiguration(f"valueFormat=schema: the schema of {name}: {error}; {_OTHERWISE}") from None


def _type_of(name: str, known: tuple[bytes, ...]) -> str:
    shape = _newest(name, known)
    if why := shape.untyped():
        raise BadConfiguration(
            f"valueFormat=schema: the schema of {name}: {why}; give the reader a schema without that field"
        )
    return shape.ddl


def require_registered(options: dict[str, Any], kind: pa.StructType) -> None:
    """Check the type that a user gives for `value` with the schemas of the topics.

    Raises:
        BadConfiguration: no version has such a field, or the newest one has another type.
    """
    found, unknown = schemas_of(options), {each.name for each in kind}
    for name, known in found.items():
        shape = _newest(name, known)
        if why := misfit(shape, kind):
            raise BadConfiguration(f"valueFormat=schema: the schema of {name} does not fit: {why}")
        unknown -= {field for field, _ in shape.fields}
    for data in (each for known in found.values() for each in known if each and unknown):
        with contextlib.suppress(BadSchema):
            unknown -= {field for field, _ in Registered(data).definition.shape.fields}
    if unknown and found:
        raise BadConfiguration(
            f"valueFormat=schema: no schema of the topics has a field {sorted(unknown)[0]!r}; check the name"
        )


# -- values --------------------------------------------------------------------------------------------


class _Version:
    """Decodes the values of one version of a schema into one type.

    Raises:
        ValueError: no value of this version can be decoded.
    """

    def __init__(self, found: Registered, kind: pa.StructType) -> None:
        definition = found.definition
        self.plain = found.json and is_exact(definition.shape, kind)
        """Whether Arrow may decode the values."""
        why = misfit(definition.shape, kind) or ("" if found.json else definition.refused)
        if why:
            raise ValueError(why)
        self._convert: Convert | None = converter(definition.shape, kind)
        self._decode = _json_decoder(definition) if found.json else _avro_decoder(definition)

    def value(self, data: bytes) -> Any:
        """Return a value as Arrow takes it. Raises one of _WRONG."""
        found = self._decode(data)
        return found if self._convert is None else self._convert(found)


def _json_decoder(definition: Definition) -> Callable[[bytes], Any]:
    kind = json_type(definition.shape)
    decoder = msgspec.json.Decoder(kind)

    def decode(data: bytes) -> Any:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # perhaps only a number beyond JSON: Python's clients write NaN
            return msgspec.convert(json.loads(data), kind)

    return decode


def _avro_decoder(definition: Definition) -> Callable[[bytes], Any]:
    import fastavro

    schema = fastavro.parse_schema(definition.avro)

    def decode(data: bytes) -> Any:
        file = io.BytesIO(data)
        found = fastavro.schemaless_reader(file, schema, None)
        if (rest := len(data) - file.tell()) > 0:
            raise ValueError(f"{rest} bytes are left behind the record")
        return found

    return decode


class TypedValues:
    """Decodes values of one topic."""

    def __init__(self, topic: TopicReader, kind: pa.StructType) -> None:
        self._topic = topic
        self._kind = kind
        self._schemas: tuple[bytes, ...] = ()
        self._versions: dict[int | None, _Version | str] = {}
        """Decoders; a text says why the version has no decoder."""
        self.refused = 0
        """How many values did not fit."""

    def decode(self, batch: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Return the values of a batch, and by row the reason of a null.

        The reason says why the value does not fit.
        """
        values, versions, headers, positions = (
            batch.column(batch.schema.get_field_index(name)) for name in NEEDED
        )
        numbers = versions.to_pylist()
        fast = self._fast(values, set(numbers), headers)
        if fast is not None:
            return fast, {}
        out: list[Any] = []
        faults: dict[int, str] = {}
        rows = zip(values.to_pylist(), numbers, headers.is_valid().to_pylist(), strict=True)
        for row, (data, number, encrypted) in enumerate(rows):
            made = None
            try:
                if encrypted:
                    raise ValueError("it is encrypted")
                made = None if data is None else self._version(number).value(data)
            except _WRONG as error:
                faults[row] = self._words(positions[row].as_py(), number, error)
            out.append(made)
        try:
            found = pa.array(out, self._kind)
        except (pa.ArrowException, *_WRONG):
            for row, made in enumerate(out):  # find the values that Arrow does not take
                try:
                    pa.array([made], self._kind)
                except (pa.ArrowException, *_WRONG) as error:
                    faults[row], out[row] = self._words(positions[row].as_py(), numbers[row], error), None
            found = pa.array(out, self._kind)
        self.refused += len(faults)
        return found, faults

    def _fast(self, values: pa.Array, numbers: set[int | None], headers: pa.Array) -> pa.Array | None:
        """Decode plain JSON at once; None: a value is not plain, or does not fit."""
        try:
            plain = headers.null_count == len(headers) and all(self._version(each).plain for each in numbers)
        except _WRONG:
            return None
        if not plain:
            return None
        from holdfast.pipeline.source.json_values import decode_fast  # loads Arrow's functions

        return decode_fast(values, self._kind)

    def _version(self, number: int | None) -> _Version:
        """Return the decoder of a version. Raises ValueError: it has none."""
        found = self._versions.get(number)
        if found is None:
            try:
                found = _Version(Registered(self._schema(number)), self._kind)
            except (BadSchema, ValueError) as error:
                found = str(error)
            self._versions[number] = found
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _schema(self, number: int | None) -> bytes:
        if number is None or number >= len(self._schemas):
            self._schemas = self._topic.schemas()
        if number is None:
            data = self._schemas[-1] if self._schemas else b""
            if not data or not Registered(data).json:
                raise ValueError("its producer had no schema")
            return data
        if number >= len(self._schemas) or not self._schemas[number]:
            raise ValueError(f"the topic has no schema of version {number}")
        return self._schemas[number]

    def _words(self, position: int, number: int | None, error: BaseException) -> str:
        version = "without a version" if number is None else f"version {number}"
        words = str(error) or type(error).__name__
        return (
            f"{self._topic.name}, position {position}: the value does not fit its schema ({version}): {words}"
        )


def decoded(
    batches: Iterator[pa.RecordBatch], topic: Callable[[], TopicReader], wanted: pa.Schema, permissive: bool
) -> Iterator[pa.RecordBatch]:
    """Decode the values of rows, and select the wanted columns.

    Raises:
        IncompatibleSchema: a value does not fit its schema, in mode failfast.
    """
    kind = wanted.field("value").type
    typed: TypedValues | None = None
    for batch in batches:
        typed = typed or TypedValues(topic(), kind)
        values, faults = typed.decode(batch)
        if faults and not permissive:
            raise IncompatibleSchema(f"{next(iter(faults.values()))}; set mode=permissive to read it as null")
        columns = []
        for field in wanted:
            column = (
                values if field.name == "value" else batch.column(batch.schema.get_field_index(field.name))
            )
            if field.name == "corrupt" and faults:
                told = column.to_pylist()
                for row, words in faults.items():
                    told[row] = words
                column = pa.array(told, field.type)
            columns.append(column)
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
    if typed is not None and typed.refused:
        log.warning("%s: %d values did not fit their schemas, and are null", topic().name, typed.refused)


def columns_for(names: Sequence[str]) -> list[str]:
    """Return the columns to read for these ones, with those from which values are decoded."""
    return list(dict.fromkeys([*names, *NEEDED]))


__all__ = [
    "NEEDED",
    "Registered",
    "TypedValues",
    "columns_for",
    "decoded",
    "registered_type",
    "require_registered",
]
