"""Read routing keys of entries, and take single messages out of batches.

An entry is what a Pulsar client sends: `[magic, checksum,] size, metadata, payload`. The payload of a batch
is a row of messages, each with metadata of its own. Only the fields that matter here are read. Others are
copied byte by byte, so nothing that a client wrote is lost.

These functions are pure, so that events may use them (see `events.base`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from holdfast import _core
from holdfast.errors import Misuse, Unsupported

_MAGIC = b"\x0e\x01"
_ZLIB = 2
_COMPRESSIONS = {0: "NONE", 1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}

# Fields of MessageMetadata in PulsarApi.proto.
_KEY, _COMPRESSION, _SIZE, _BATCH, _ENCRYPTED, _KEY_B64 = 6, 8, 9, 11, 13, 17
_OF_ONE_MESSAGE = {2, 4, _KEY, _COMPRESSION, _SIZE, _BATCH, 12, _KEY_B64, 18, 24, 25, 30}
"""Fields that a message of a batch has in its own metadata, or that describe the batch."""

# Fields of SingleMessageMetadata, and the same field of MessageMetadata.
_SINGLE_SIZE = 3
_SINGLE = {1: 4, 2: _KEY, 5: 12, 6: _KEY_B64, 7: 18, 8: 2, 9: 25, 10: 30}

UNPACKED_MAX = 8 << 20
"""Bytes of the largest batch that is decompressed."""
OPENED_MAX = 10_000
"""Messages of the largest batch that is opened: events are applied on the broker's loop."""
METADATA_BYTES_MAX = 512 << 10
"""Bytes of metadata of an entry and its messages together, likewise."""
KEY_BYTES_MAX = 4096
"""Bytes of the longest key that an exchange compares."""


class Field(NamedTuple):
    """One field of a protobuf message."""

    number: int
    wire: int
    value: int | bytes
    raw: bytes
    """The value as it stands, without its tag."""


class Head(NamedTuple):
    """The metadata of an entry, as far as it is needed here."""

    fields: list[Field]
    payload: bytes
    key: str
    messages: int
    """Number of messages of a batch; 0: the entry is a single message, or a part of one."""
    compression: int
    encrypted: bool


def malformed(what: str) -> Misuse:
    """Return the refusal of an entry that cannot be parsed."""
    return Misuse(f"an entry of a message cannot be parsed: {what}; publish it with a Pulsar client")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise malformed("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _tag(number: int, wire: int) -> bytes:
    tag, out = number << 3 | wire, bytearray()
    while tag > 127:
        out.append(tag & 127 | 128)
        tag >>= 7
    out.append(tag)
    return bytes(out)


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message.

    Raises:
        Misuse: the bytes are not one.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire, start = tag >> 3, tag & 7, at
        value: int | bytes
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            value = data[start:at]
        else:
            raise malformed(f"field {number} has the unknown type {wire}")
        if at > len(data):
            raise malformed(f"field {number} is cut off")
        yield Field(number, wire, value, data[start:at])


def _text(key: bytes, encoded: bool) -> str:
    """Return a key as text.

    Bytes that are not UTF-8 are escaped, so that they equal no binding's key.
    """
    if encoded:
        with contextlib.suppress(binascii.Error):  # else the key counts as it stands
            key = base64.b64decode(key, validate=True)
    return key.decode("utf-8", "surrogateescape")


def _key_of(found: list[Field], key: int, encoded: int) -> str:
    values = {each.number: each.value for each in found if each.number in (key, encoded)}
    given = values.get(key, b"")
    if isinstance(given, bytes) and len(given) > KEY_BYTES_MAX:
        raise Misuse(
            f"the key of a message has {len(given)} bytes; an exchange compares at most {KEY_BYTES_MAX} bytes"
        )
    return _text(given, bool(values.get(encoded))) if isinstance(given, bytes) else ""


def head_of(entry: bytes) -> Head:
    """Parse the metadata of an entry.

    Raises:
        Misuse: the bytes are not an entry.
    """
    at = 6 if entry[:2] == _MAGIC else 0
    if len(entry) < at + 4:
        raise malformed("it is shorter than its header")
    (size,) = struct.unpack_from(">I", entry, at)
    if len(entry) < at + 4 + size:
        raise malformed("its metadata is cut off")
    require_metadata(size)
    found = list(fields(entry[at + 4 : at + 4 + size]))
    numbers = {each.number: each.value for each in found if isinstance(each.value, int)}
    return Head(
        found,
        entry[at + 4 + size :],
        _key_of(found, _KEY, _KEY_B64),
        numbers.get(_BATCH, 0),
        numbers.get(_COMPRESSION, 0),
        any(each.number == _ENCRYPTED for each in found),
    )


def require_metadata(size: int) -> None:
    """Raise Unsupported for more metadata than is parsed."""
    if size > METADATA_BYTES_MAX:
        raise Unsupported(
            f"the metadata of an entry has {size} bytes or more; an exchange reads at most "
            f"{METADATA_BYTES_MAX} bytes. Send shorter properties, or smaller batches"
        )


def can_open(head: Head) -> bool:
    """Return whether the messages of a batch can be read."""
    return not head.encrypted and head.compression in (0, _ZLIB)


def _messages(head: Head) -> list[tuple[list[Field], bytes]]:
    """Return metadata and payload of each message of a batch."""
    if not can_open(head):
        how = "encrypted" if head.encrypted else _COMPRESSIONS.get(head.compression, "compressed")
        raise Unsupported(
            f"a batch of {head.messages} messages is {how}, so the broker cannot read their keys; publish "
            "without batching, or without compression, or with ZLIB"
        )
    if head.messages > OPENED_MAX:
        raise Unsupported(
            f"a batch of {head.messages} messages is not opened; batch at most {OPENED_MAX} messages"
        )
    payload = head.payload
    if head.compression == _ZLIB:
        opened = zlib.decompressobj()
        try:
            payload = opened.decompress(payload, UNPACKED_MAX)
        except zlib.error as error:
            raise malformed(f"it does not decompress ({error})") from None
        if not opened.eof:
            raise malformed(f"it decompresses to more than {UNPACKED_MAX} bytes, or is cut off")
    out: list[tuple[list[Field], bytes]] = []
    at = metadata = 0
    for _ in range(head.messages):
        if at + 4 > len(payload):
            raise malformed("the batch has fewer messages than it says")
        (size,) = struct.unpack_from(">I", payload, at)
        at += 4 + size
        metadata += size
        require_metadata(metadata)
        found = list(fields(payload[at - size : at]))
        length = next((each.value for each in found if each.number == _SINGLE_SIZE), 0)
        if not isinstance(length, int) or at + length > len(payload):
            raise malformed("a message of the batch is cut off")
        out.append((found, payload[at : at + length]))
        at += length
    return out


def keys_of(entry: bytes) -> list[str]:
    """Return the key of each message, "" without a key.

    An entry that is not a batch has one message.

    Raises:
        Misuse: the bytes are not an entry.
        Unsupported: the messages of a batch cannot be read.

    Example:
        >>> [entry] = _core.encode_messages([b"a", b"b"], "p", 0, 0, key="red", batch=2)
        >>> keys_of(entry)
        ['red', 'red']
    """
    head = head_of(entry)
    if not head.messages:
        return [head.key]
    return [_key_of(found, 2, 6) for found, _ in _messages(head)]


def size_of(entry: bytes) -> int:
    """Return the number of messages in an entry; 0 if it is not a batch."""
    return head_of(entry).messages


def split(entry: bytes) -> list[tuple[str, bytes]]:
    """Return the messages of a batch as entries of their own, each with its key.

    Raises:
        Misuse: the bytes are not an entry.
        Unsupported: the messages of a batch cannot be read.

    Example:
        >>> [entry] = _core.encode_messages([b"a", b"b"], "p", 0, 0, key="red", batch=2)
        >>> [(key, _core.parse_entry(each).payload) for key, each in split(entry)]
        [('red', b'a'), ('red', b'b')]
    """
    head = head_of(entry)
    if not head.messages:
        return [(head.key, entry)]
    shared = b"".join(
        _tag(each.number, each.wire) + each.raw for each in head.fields if each.number not in _OF_ONE_MESSAGE
    )
    first = next((each for each in head.fields if each.number == 2), None)
    out = []
    for found, payload in _messages(head):
        own = [each for each in found if each.number in _SINGLE]
        if first is not None and not any(each.number == 8 for each in own):
            own.append(Field(8, first.wire, first.value, first.raw))  # a sequence is required
        metadata = shared + b"".join(_tag(_SINGLE[each.number], each.wire) + each.raw for each in own)
        body = struct.pack(">I", len(metadata)) + metadata + payload
        out.append((_key_of(found, 2, 6), _MAGIC + struct.pack(">I", _core.crc32c(body)) + body))
    return out
