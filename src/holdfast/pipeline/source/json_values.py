"""Decode JSON values into columns of a given type, as Spark's `from_json` (PERMISSIVE) does.

A field that is missing, or of another type, is null. A value that is not a JSON object has only nulls, and a
blank value is null. A value affects only its own row and does not fail the query (I159).
docs/guide/source.md lists the differences to Spark. Spark itself cannot decode here: a source in Python hands
over rows, and has no part in the query.

Arrow decodes a batch of plain values at once. Python's `json` decodes every other batch value by value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

DEPTH_MAX = 250
"""Values that nest deeper are not JSON: no parser needs more stack."""
# Possessive (*+): a text is matched in time proportional to its length.
_TEXT = re.compile(
    rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL
)  # also an unterminated one: brackets in it do not count
_SPECIAL = {
    "NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf", "-Infinity": "-inf", "-INF": "-inf"
}  # fmt: skip
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
_NOT_OF_THE_TYPE = (ValueError, TypeError, LookupError, ArithmeticError, msgspec.ValidationError)
Convert = Callable[[Any], Any]


def decode_values(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """Decode a column of bytes into a column of structs of this type."""
    fast = decode_fast(values, kind)
    return decode_each(values, kind) if fast is None else fast


def decode_fast(values: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """Decode all values at once; None: a value is not plain, or is ambiguous.

    Arrow parses documents one after another and does not return where each began. Here each value is exactly
    one document: every line begins with { and ends with }. An end of line within a text is an error. After a
    } a { can only begin a document. So a line is one document or more, and there are as many rows as lines.
    """
    if len(values) == 0 or values.null_count > 0 or not _is_plain(kind):
        return None
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    whole = memoryview(lines).tobytes()
    if whole.count(b"\n") != len(values) - 1 or b"\r" in whole:
        return None  # a value has several lines
    for place, mark in ((0, b"{"), (-1, b"}")):
        ends = pc.binary_slice(values, place, None if place else 1)
        if not pc.all(pc.equal(ends, mark)).as_py():
            return None
    long = values.filter(pc.greater(pc.binary_length(values), 2 * DEPTH_MAX))
    if any(_brackets(each) > DEPTH_MAX for each in long.to_pylist()):
        return None  # perhaps too deep
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, lines.size + 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(values):
            return None
        made = table.to_struct_array().combine_chunks().cast(kind)
        made.validate(full=True)  # text must be UTF-8
    except (pa.ArrowException, OSError):
        return None
    return made


def _is_plain(kind: pa.DataType) -> bool:
    """Tell whether Arrow and Spark decode this type alike."""
    if pa.types.is_nested(kind):
        inside = [kind.field(at).type for at in range(kind.num_fields)]
        return not pa.types.is_map(kind) and all(map(_is_plain, inside))
    simple = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_string)
    return any(is_one(kind) for is_one in simple)


# -- value by value ------------------------------------------------------------------------------------


_DECODER = json.JSONDecoder(
    parse_int=lambda text: (
        int(text) if len(text) <= 20 else Decimal(text)
    ),  # Python limits the digits of an int
    parse_float=Decimal,
    parse_constant=str,
)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def decode_each(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """Decode values one by one."""
    convert = _converter(kind)

    def value(data: bytes | None) -> Any:
        text = "" if data is None else data.decode("utf-8", "replace").lstrip(" \t\n\r")
        if data is None or not text:
            return None
        try:
            return convert({} if _is_deep(data) else _DECODER.raw_decode(text)[0])
        except (ValueError, TypeError):
            return convert({})

    return pa.array([value(each) for each in values.to_pylist()], kind)


def _brackets(value: bytes) -> int:
    return value.count(b"{") + value.count(b"[")


def _is_deep(value: bytes) -> bool:
    if _brackets(value) <= DEPTH_MAX:
        return False
    depth = 0
    for byte in _TEXT.sub(b"", value):
        depth += (byte in b"{[") - (byte in b"}]")
        if depth > DEPTH_MAX:
            return True
        if depth == 0 and byte in b"}]":
            break
    return False


def _converter(kind: pa.DataType) -> Convert:
    """Create a function from a parsed value, not null, to this type.

    It raises one of _NOT_OF_THE_TYPE.
    """
    if pa.types.is_struct(kind):
        return _struct({field.name: _converter(field.type) for field in kind})
    if pa.types.is_list(kind):
        item = _or_null(_converter(kind.value_type))
        return lambda found: [item(each) for each in _of(found, list)]
    if pa.types.is_map(kind):
        item = _or_null(_converter(kind.item_type))
        return lambda found: list(
            {_string(name): item(each) for name, each in _of(found, dict).items()}.items()
        )
    if pa.types.is_signed_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local
    return next(convert for is_one, convert in _SCALARS if is_one(kind))


def _of(found: Any, *kinds: type) -> Any:
    """Check that the value has one of these types; a boolean is not a number."""
    if type(found) not in kinds:
        raise TypeError
    return found


def _or_null(convert: Convert) -> Convert:
    return lambda found: None if found is None else convert(found)


def _struct(fields: dict[str, Convert]) -> Convert:
    def convert(found: Any) -> dict[str, Any]:
        out: dict[str, Any] = dict.fromkeys(fields)
        for name in _of(found, dict).keys() & fields.keys():
            try:
                out[name] = None if found[name] is None else fields[name](found[name])
            except _NOT_OF_THE_TYPE:
                continue
        return out

    return convert


def _integer(bits: int) -> Convert:
    def convert(found: Any) -> int:
        number: int = _of(found, int)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError
        return number

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)

    def convert(found: Any) -> Decimal:
        text = found.replace(",", "") if isinstance(found, str) else _of(found, int, Decimal)
        made = _WIDE.quantize(Decimal(text), step)
        if abs(made) >= limit:
            raise ValueError
        return made

    return convert


def _double(found: Any) -> float:
    return float(_SPECIAL[found] if isinstance(found, str) else _of(found, int, Decimal))


def _float(found: Any) -> float:
    wide = _double(found)
    try:
        return float(pa.scalar(str(found)).cast(pa.float32()).as_py())  # rounded once, not twice
    except pa.ArrowInvalid:
        return wide


def _string(found: Any) -> str:
    """Return a text, or another value as JSON.

    Half of a surrogate pair becomes `?`, as in Java.
    """
    text = found if isinstance(found, str) else _ENCODER.encode(found).decode()
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _moment(found: Any) -> datetime:
    text = _of(found, str).strip()
    if text[4:5] != "-" or not text[5:6].isdigit():
        raise ValueError  # a form of ISO 8601 that Spark does not accept
    return datetime.fromisoformat(text)


def _day(found: Any) -> date:
    return _moment(found).date()


def _instant(found: Any) -> datetime:
    if type(found) is int:
        return datetime.fromtimestamp(found, UTC)
    moment = _moment(found)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _local(found: Any) -> datetime:
    moment = _moment(found)
    if moment.tzinfo is not None:
        raise ValueError
    return moment


_SCALARS: list[tuple[Callable[[pa.DataType], bool], Convert]] = [
    (pa.types.is_string, _string),
    (pa.types.is_boolean, lambda found: _of(found, bool)),
    (pa.types.is_float32, _float),
    (pa.types.is_floating, _double),
    (pa.types.is_binary, lambda found: msgspec.convert(_of(found, str), bytes)),
    (pa.types.is_date, _day),
]
