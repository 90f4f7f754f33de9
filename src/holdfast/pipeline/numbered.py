"""Encode and decode numbered messages, by which an audit finds lost and repeated ones.

A producer has a unique name. In each topic it numbers its messages from 0, across all partitions. There are
two forms, which differ in their first bytes. JSON: an object with the fields `producer`, `number`, `sent_ns`,
`key`, and any others. It has no checksum, so a changed digit gives another number. Binary:

```
| "HFN1" | crc32 u32 of all that follows | number u64 | sent_ns u64 | producer size u8 | key size u8 |
| producer | key | anything |                                                   numbers big-endian, text UTF-8
```

The encoders need only Python. The decoder consists of Spark columns: no Python code runs per message.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

from holdfast.errors import Misuse

if TYPE_CHECKING:
    from pyspark.sql import Column

MAGIC = b"HFN1"
HEAD = struct.Struct(">QQBB")
TEXT_MAX = 255
FIELDS = "producer STRING, number BIGINT, sent_ns BIGINT, key STRING"


def encode(producer: str, number: int, key: str, *, sent_ns: int | None = None, body: bytes = b"") -> bytes:
    """Encode a numbered message in binary; `sent_ns` defaults to now.

    Example:
        >>> encode("rig-1", 7, "channel-3", sent_ns=1).hex(" ", 4)[:26]
        '48464e31 c5514984 00000000'

    Raises:
        Misuse: a name or key has more than 255 bytes, or a number is not from 0 to 2^63 - 1.
    """
    name, label = _text(producer), _text(key)
    sent = time.time_ns() if sent_ns is None else sent_ns
    if not (0 <= number < 1 << 63 and 0 <= sent < 1 << 63):
        raise Misuse(f"number {number}, sent_ns {sent}: both must be 0 or more, and less than 2^63")
    rest = HEAD.pack(number, sent, len(name), len(label)) + name + label + body
    return MAGIC + struct.pack(">I", zlib.crc32(rest)) + rest


def encode_json(producer: str, number: int, key: str, *, sent_ns: int | None = None, **more: Any) -> bytes:
    """Encode a numbered message as JSON, with more fields of the caller.

    Example:
        >>> encode_json("rig-1", 7, "channel-3", sent_ns=1, value=0.5)
        b'{"producer": "rig-1", "number": 7, "sent_ns": 1, "key": "channel-3", "value": 0.5}'
    """
    if number < 0:
        raise Misuse(f"number {number}: it must be 0 or more")
    sent = time.time_ns() if sent_ns is None else sent_ns
    fields = {"producer": producer, "number": number, "sent_ns": sent, "key": key, **more}
    return json.dumps(fields, ensure_ascii=False).encode()


def _text(text: str) -> bytes:
    data = text.encode()
    if not 0 < len(data) <= TEXT_MAX and text:
        raise Misuse(f"name or key {text[:20]!r}… has {len(data)} bytes; at most {TEXT_MAX} are possible")
    return data


def decoded(value: Column | str) -> Column:
    """Decode a column to a struct of producer, number, sent_ns and key.

    `number` is null if the value is not a numbered message.
    """
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(value) if isinstance(value, str) else value
    names, keys = _unsigned(value, 25, 1), _unsigned(value, 26, 1)
    producer, key = _slice(value, 27, names), _slice(value, F.lit(27) + names, keys)
    whole = F.crc32(_slice(value, 9)) == _unsigned(value, 5, 4)
    from_binary = F.when(
        whole & is_text(producer) & is_text(key),
        F.struct(
            producer.cast("string").alias("producer"),
            _unsigned(value, 9, 8).alias("number"),
            _unsigned(value, 17, 8).alias("sent_ns"),
            key.cast("string").alias("key"),
        ),
    )
    binary = looks_numbered(value)
    json_like = _slice(value, 1, F.lit(1)) == F.lit(b"{")
    # Used once: in several branches, Spark would parse the JSON once per field.
    return F.when(binary, from_binary).when(json_like, F.from_json(value.cast("string"), FIELDS))


def looks_numbered(value: Column | str) -> Column:
    """Test for the first bytes of a binary numbered message, which may be damaged."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(value) if isinstance(value, str) else value
    return _slice(value, 1, F.lit(len(MAGIC))) == F.lit(MAGIC)


def is_text(value: Column | str) -> Column:
    """Test for UTF-8.

    Other bytes are not a name: Spark compares the bytes, and Python the readable characters, which several
    names may share.
    """
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(value) if isinstance(value, str) else value
    return F.is_valid_utf8(value.cast("string"))


def _slice(value: Column, start: int | Column, size: Column | None = None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    at = F.lit(start) if isinstance(start, int) else start
    return F.substring(value, at, F.lit(0x7FFFFFFF) if size is None else size)


def _unsigned(value: Column, start: int, size: int) -> Column:
    """Read a big-endian number; null if bytes are missing or it is too large."""
    from pyspark.sql import functions as F  # noqa: N812

    text = F.conv(F.hex(_slice(value, start, F.lit(size))), 16, 10)
    return text.try_cast("bigint" if size >= 4 else "int")
