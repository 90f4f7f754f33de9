"""Values that are JSON, decoded into the columns of a given type: as Spark's `from_json`, PERMISSIVE.

A field that is missing, or of another type, is null; a value that is no JSON object has nothing but nulls; no
value, or a blank one, is null. Whatever a value is, it decides about its own row alone, and ends no query.
docs/guide/source.md lists where this is not what Spark does.

A batch that is all as it should be is decoded by Arrow at once; any other one value by value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

DEPTH_MAX = 250
"""What is nested deeper is no JSON: neither parser shall need more stack for it."""
_BLANK = " \t\n\r"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What is taken is kept (*+, ++) and not tried a second way: a value takes time as its length.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)  # also one that does not end: nothing nests in it
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T](.*))?)?)?", re.DOTALL)
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?(.*)", re.DOTALL)
_ZONE = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})|:([0-9]))?")
_SPECIAL = {
    "NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf", "-Infinity": "-inf", "-INF": "-inf"
}  # fmt: skip
_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)


def decode_values(values: pa.Array, kind: pa.StructType) -> pa.Array:
    """A column of bytes as a column of structs of this type."""
    fast = decode_fast(values, kind)
    if fast is not None:
        return fast
    convert = _converter(kind)
    return pa.array([_value(each, convert) for each in values.to_pylist()], kind)


# -- all at once ---------------------------------------------------------------------------------------


def decode_fast(values: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """All at once; None: something is not as it should be, or could be understood in two ways.

    Arrow parses documents one after another, and does not say where each began. Here each value is exactly
    one of them: every line begins with { and ends with }. Within a text the end of a line is an error, and
    after a } a { can only stand where a document begins. So each line is one document or more; and there
    are as many rows as lines.
    """
    if len(values) == 0 or values.null_count > 0 or not all(_plain(field.type) for field in kind):
        return None
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    whole = memoryview(lines).tobytes()
    if whole.count(b"\n") != len(values) - 1 or b"\r" in whole:
        return None  # lines would not be values
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
        columns = [each.combine_chunks() for each in table.columns]
        columns = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in columns]
        made = pa.StructArray.from_arrays(columns, fields=list(kind))
        made.validate(full=True)  # above all, that text is UTF-8
    except (pa.ArrowException, OSError):
        return None
    return made


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


# -- value by value ------------------------------------------------------------------------------------


class _Number(str):
    """A number, as it stands there. Texts are plain str, objects tuples of pairs, arrays lists."""

    __slots__ = ()


class _Bad(Exception):
    """It is not of the type."""


Convert = Callable[[Any], Any]
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(  # type: ignore[attr-defined]
    object_pairs_hook=tuple,
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_Number,
).scan_once


def _value(value: bytes | None, convert: Convert) -> Any:
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip(_BLANK))
    if start == len(text):
        return None
    found: Any = ()
    if not _deep(value):
        try:
            found, _ = _scan(text, start)  # what stands behind it is nobody's
        except (ValueError, StopIteration):
            found = ()
    return convert(found if isinstance(found, tuple) else ())


def _brackets(value: bytes) -> int:
    return value.count(b"{") + value.count(b"[")


def _deep(value: bytes) -> bool:
    if _brackets(value) <= DEPTH_MAX:
        return False
    depth = 0
    for byte in _TEXT.sub(b"", value):
        if byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
        if depth > DEPTH_MAX:
            return True
        if depth == 0 and byte in b"}]":
            break
    return False


def _converter(kind: pa.DataType) -> Convert:
    """What makes a thing of this type of a parsed one that is not null. It raises _Bad."""
    if pa.types.is_struct(kind):
        return _struct({field.name: _converter(field.type) for field in kind})
    if pa.types.is_list(kind):
        return _list(_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_converter(kind.item_type))
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_signed_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_timestamp(kind):
        return _zoned if kind.tz else _local
    for fits, convert in _SCALARS:
        if fits(kind):
            return convert
    raise TypeError(f"no JSON becomes {kind}")  # columns.require_columns refuses it before


def _struct(fields: dict[str, Convert]) -> Convert:
    nothing = dict.fromkeys(fields)

    def convert(found: Any) -> dict[str, Any]:
        if not isinstance(found, tuple):
            raise _Bad
        out: dict[str, Any] = dict(nothing)
        for name, value in found:  # of those that come twice the last that is one
            if name in fields:
                try:
                    out[name] = None if value is None else fields[name](value)
                except _Bad:
                    continue
        return out

    return convert


def _list(item: Convert) -> Convert:
    def convert(found: Any) -> list[Any]:
        if not isinstance(found, list):
            raise _Bad
        return [None if each is None else item(each) for each in found]

    return convert


def _map(item: Convert) -> Convert:
    def convert(found: Any) -> list[tuple[str, Any]]:
        if not isinstance(found, tuple):
            raise _Bad
        last = {_clean(name): None if each is None else item(each) for name, each in found}
        return list(last.items())

    return convert


def _integer(bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(found: Any) -> int:
        if not isinstance(found, _Number) or len(found) > 20 or not found.lstrip("-").isdigit():
            raise _Bad
        number = int(found)
        if not low <= number <= high:
            raise _Bad
        return number

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)

    def convert(found: Any) -> Decimal:
        text = found.replace(",", "") if isinstance(found, str) else ""
        if not _DECIMAL.fullmatch(text):
            raise _Bad
        try:
            made = _WIDE.quantize(Decimal(text), step)
        except InvalidOperation:
            raise _Bad from None
        if abs(made) >= limit:
            raise _Bad
        return made

    return convert


def _boolean(found: Any) -> bool:
    if not isinstance(found, bool):
        raise _Bad
    return found


def _number_of(found: Any) -> str:
    if isinstance(found, _Number):
        return found
    if isinstance(found, str) and found in _SPECIAL:
        return _SPECIAL[found]
    raise _Bad


def _double(found: Any) -> float:
    return float(_number_of(found))


def _float(found: Any) -> float:
    text = _number_of(found)
    try:
        return float(pa.scalar(text).cast(pa.float32()).as_py())  # rounded once, not twice
    except pa.ArrowInvalid:
        return float(text)


def _binary(found: Any) -> bytes:
    if not isinstance(found, str) or isinstance(found, _Number) or len(found) % 4:
        raise _Bad
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        raise _Bad from None


def _clean(text: str) -> str:
    """Text that can be written: half of a surrogate pair is a question mark, as with Java."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _string(found: Any) -> str:
    if isinstance(found, str) and not isinstance(found, _Number):
        return _clean(found)
    out: list[str] = []
    _write(found, out)
    return _clean("".join(out))


def _write(found: Any, out: list[str]) -> None:
    """The same JSON without blanks; numbers as they stand. One frame of the stack for each level."""
    if isinstance(found, tuple):
        for at, (name, value) in enumerate(found):
            out.append(f"{',' if at else '{'}{json.dumps(name, ensure_ascii=False)}:")
            _write(value, out)
        out.append("}" if found else "{}")
    elif isinstance(found, list):
        for at, value in enumerate(found):
            out.append("," if at else "[")
            _write(value, out)
        out.append("]" if found else "[]")
    elif isinstance(found, _Number):
        out.append(f'"{found}"' if found in _SPECIAL else found)
    else:
        out.append(json.dumps(found, ensure_ascii=False))


# -- times ---------------------------------------------------------------------------------------------


def _parts(found: Any) -> tuple[date, str | None]:
    """The day that a text begins with, and what stands behind it; None: nothing, and no mark of a time."""
    if not isinstance(found, str) or isinstance(found, _Number):
        raise _Bad
    parts = _DATE.fullmatch(found.strip())
    if parts is None:
        raise _Bad
    try:
        return date(int(parts[1]), int(parts[2] or 1), int(parts[3] or 1)), parts[4]
    except ValueError:
        raise _Bad from None


def _day(found: Any) -> int:
    return (_parts(found)[0] - _EPOCH.date()).days


def _zoned(found: Any) -> int:
    """Microseconds since the epoch; a whole number is seconds."""
    if isinstance(found, _Number):
        seconds = _integer(64)(found)
        if not -62_135_596_800 <= seconds < 253_402_300_800:  # the years 1 to 9999
            raise _Bad
        return int(seconds) * 1_000_000
    moment, zone = _moment(found)
    try:
        if isinstance(zone, ZoneInfo):
            moment = moment.replace(tzinfo=zone).astimezone(UTC)
        elif zone is not None:
            moment = moment - zone
    except (OverflowError, ValueError):
        raise _Bad from None
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _local(found: Any) -> int:
    moment, zone = _moment(found)
    if zone is not None:
        raise _Bad
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _moment(found: Any) -> tuple[datetime, timedelta | ZoneInfo | None]:
    day, rest = _parts(found)
    parts = _TIME.fullmatch(rest if rest is not None else "0")
    if parts is None:
        raise _Bad
    fraction = ((parts[4] or "") + "000000")[:6]
    try:
        moment = datetime(
            day.year, day.month, day.day, int(parts[1]), int(parts[2] or 0), int(parts[3] or 0), int(fraction)
        )
    except ValueError:
        raise _Bad from None
    return moment, _zone(parts[5].strip()) if parts[5] else None


@lru_cache(256)
def _zone(name: str) -> timedelta | ZoneInfo:
    if name in ("Z", "UTC", "GMT", "UT"):
        return timedelta(0)
    if parts := _ZONE.fullmatch(name):
        minutes = int(parts[2]) * 60 + int(parts[3] or parts[4] or 0)
        if minutes > 18 * 60 or int(parts[3] or parts[4] or 0) > 59:
            raise _Bad
        return timedelta(minutes=-minutes if parts[1] == "-" else minutes)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise _Bad from None


_SCALARS: list[tuple[Callable[[pa.DataType], bool], Convert]] = [
    (pa.types.is_string, _string),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_float32, _float),
    (pa.types.is_floating, _double),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _day),
]
