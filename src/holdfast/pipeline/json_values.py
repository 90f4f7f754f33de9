"""Values that are JSON, decoded into the columns of a given type: as Spark's `from_json`, PERMISSIVE.

A field that is missing, or of another type, is null; a value that is no JSON object has nothing but nulls; no
value, or a blank one, is null. A batch that is all as it should be is decoded by Arrow at once; any other one
value by value.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj


def decode_values(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """A column of bytes as a column of structs of this type."""
    fast = decode_fast(values, kind)
    if fast is not None:
        return fast
    fields = {field.name: field.type for field in kind}
    return pa.array([_struct(value, fields) for value in values.to_pylist()], kind)


def decode_fast(values: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """All at once; None: something is not as it should be, or could be understood in two ways."""
    if len(values) == 0 or values.null_count > 0 or not all(_plain(field.type) for field in kind):
        return None
    data = values.buffers()[2]
    if data is None or b"\n" in (whole := data.to_pybytes()) or b"\r" in whole:
        return None  # lines would not be values
    if not pc.all(pc.equal(pc.binary_slice(values, 0, 1), b"{")).as_py():
        return None
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    schema = pa.schema(list(kind))
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, lines.size + 1)),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, OSError):
        return None
    if table.num_rows != len(values):
        return None
    columns = [table.column(field.name).combine_chunks() for field in kind]
    columns = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in columns]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _plain(kind: pa.DataType) -> bool:
    """Arrow and Spark understand the same by it."""
    if pa.types.is_list(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
    )


def _struct(value: bytes | None, fields: dict[str, pa.DataType]) -> dict[str, Any] | None:
    if value is None or not value.strip():
        return None
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        found = {}
    return {name: _convert(found.get(name), kind) for name, kind in fields.items()}


def _convert(value: Any, kind: pa.DataType) -> Any:
    """What the value is as this type; None: nothing."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        if not isinstance(value, dict):
            return None
        return {name: _convert(value.get(name), each) for name, each in fields.items()}
    if pa.types.is_list(kind):
        return [_convert(each, kind.value_type) for each in value] if isinstance(value, list) else None
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            return None
        return [(name, _convert(each, kind.item_type)) for name, each in value.items()]
    return _scalar(value, kind)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if pa.types.is_signed_integer(kind):
        fits = isinstance(value, int) and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
        return value if fits else None
    if pa.types.is_floating(kind):
        return float(value) if isinstance(value, int | float) else None
    try:
        if pa.types.is_decimal(kind):
            found = Decimal(str(value))
            pa.scalar(found, kind)  # raises if it does not fit
            return found
        if pa.types.is_timestamp(kind) and isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if pa.types.is_date(kind) and isinstance(value, str):
            return date.fromisoformat(value[:10])
    except (ValueError, InvalidOperation, pa.ArrowException):
        return None
    return None
