"""Numbered messages: what a producer sends so that an audit can find each one, or miss it.

A producer has a name of its own and counts from 0, in each topic that it sends to, over all partitions of it.
Two forms, told apart by their first bytes. JSON: an object with the fields `producer`, `number`, `sent_ns`,
`key`, and whatever else; it has no checksum, so a digit that was changed is another number. Binary:

```
| "HFN1" | crc32 u32 of all that follows | number u64 | sent_ns u64 | producer size u8 | key size u8 |
| producer | key | anything |                                                   numbers big-endian, text UTF-8
```

The encoders need nothing but Python; the decoder is made of Spark's own columns, so nothing of it is done in
Python for a message.
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
    """A numbered message in binary; `sent_ns` is now, unless it is said.

    Example:
        >>> encode("rig-1", 7, "channel-3", sent_ns=1).hex(" ", 4)[:26]
        '48464e31 c5514984 00000000'

    Raises:
        Misuse: a name or a key of more than 255 bytes, or a number below 0.
    """
    name, label = _text(producer), _text(key)
    sent = time.time_ns() if sent_ns is None else sent_ns
    if not (0 <= number < 1 << 63 and 0 <= sent < 1 << 63):
        raise Misuse(f"{number} at {sent}: a number and a time are 0 or more, and less than 2^63")
    rest = HEAD.pack(number, sent, len(name), len(label)) + name + label + body
    return MAGIC + struct.pack(">I", zlib.crc32(rest)) + rest


def encode_json(producer: str, number: int, key: str, *, sent_ns: int | None = None, **more: Any) -> bytes:
    """The same as JSON, with more fields of the caller's own.

    Example:
        >>> encode_json("rig-1", 7, "channel-3", sent_ns=1, value=0.5)
        b'{"producer": "rig-1", "number": 7, "sent_ns": 1, "key": "channel-3", "value": 0.5}'
    """
    if number < 0:
        raise Misuse(f"{number}: a number is 0 or more")
    sent = time.time_ns() if sent_ns is None else sent_ns
    fields = {"producer": producer, "number": number, "sent_ns": sent, "key": key, **more}
    return json.dumps(fields, ensure_ascii=False).encode()


def _text(text: str) -> bytes:
    data = text.encode()
    if not 0 < len(data) <= TEXT_MAX and text:
        raise Misuse(f"{text[:20]!r}…: {len(data)} bytes; {TEXT_MAX} are possible")
    return data


def decoded(value: Column | str) -> Column:
    """A struct of producer, number, sent_ns and key; no number where the value is no numbered message."""
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
    # Named once: in branches Spark would parse again for every name.
    return F.when(binary, from_binary).when(json_like, F.from_json(value.cast("string"), FIELDS))


def looks_numbered(value: Column | str) -> Column:
    """It begins as a numbered message in binary does. If it is none all the same, it is damaged."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(value) if isinstance(value, str) else value
    return _slice(value, 1, F.lit(len(MAGIC))) == F.lit(MAGIC)


def is_text(value: Column | str) -> Column:
    """It is UTF-8. What is none is no name: Spark has it by its bytes, and Python by what can be read of
    them, which is the same of several names.
    """
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(value) if isinstance(value, str) else value
    return F.is_valid_utf8(value.cast("string"))


def _slice(value: Column, start: int | Column, size: Column | None = None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    at = F.lit(start) if isinstance(start, int) else start
    return F.substring(value, at, F.lit(0x7FFFFFFF) if size is None else size)


def _unsigned(value: Column, start: int, size: int) -> Column:
    """A big-endian number; null where there are no bytes, or it is too large."""
    from pyspark.sql import functions as F  # noqa: N812

    text = F.conv(F.hex(_slice(value, start, F.lit(size))), 16, 10)
    return text.try_cast("bigint" if size >= 4 else "int")
