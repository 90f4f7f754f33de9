"""Compressed payloads, as Pulsar's clients make them: opened by Arrow's codecs, one call for each.

A producer tells how long the payload was. It is believed when the bytes turn out to be exactly that long: a
codec fills a buffer of the told size, and what it does not fill would be memory of this process.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import pyarrow as pa

from holdfast._core import lz4_size

SIZE_MAX = 256 << 20
"""Of one message, opened, and of all its parts together. A few KiB can open to any size, and who reads has it
several times while it becomes a row: the Flight process must have room for that, and for other readers."""
_PIECE = 1 << 20
_SNAPPY_MOST = 32
"""No byte of SNAPPY becomes more: three at least are 64."""
NAMES = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}


class Unpackable(ValueError):
    """The bytes are not what their producer says."""


@cache
def _codec(name: str) -> Any:
    return pa.Codec(name)


def unpack(compression: int, size: int, payload: bytes | bytearray) -> Any:
    """The payload as its producer had it: a buffer of `size` bytes.

    Raises:
        Unpackable: it does not open, or to another size.
        MemoryError: this process has no room now. That says nothing of the payload.
    """
    name = NAMES.get(compression)
    if name is None:
        raise Unpackable(f"its compression, {compression}, is not known")
    if size > SIZE_MAX:
        raise Unpackable(f"its payload would have {size} bytes; the largest that is read has {SIZE_MAX}")
    try:
        if compression == 1:
            return _exact("lz4_raw", size, payload, lz4_size(bytes(payload)))
        if compression == 2:
            return _zlib(size, payload)
        if compression == 3:
            told = zstd_size(payload)
            return _stream(size, payload) if told is None else _exact("zstd", size, payload, told)
        if size > _SNAPPY_MOST * len(payload):
            raise Unpackable(f"its SNAPPY payload of {len(payload)} bytes cannot open to {size}")
        return _exact("snappy", size, payload, snappy_size(payload))
    except MemoryError:
        raise  # Arrow's is one of its ArrowExceptions, too
    except (OSError, zlib.error, pa.ArrowException) as error:
        raise Unpackable(f"its {name} payload does not open: {error}") from None


def _exact(codec: str, size: int, payload: bytes | bytearray, told: int) -> Any:
    if told != size:
        raise Unpackable(f"its payload opens to {told} bytes and should have {size}")
    return _codec(codec).decompress(payload, size) if size else b""


def _zlib(size: int, payload: bytes | bytearray) -> bytes:
    opener = zlib.decompressobj()
    found = opener.decompress(payload, size + 1)
    if len(found) != size or not (opener.eof or opener.decompress(opener.unconsumed_tail, 1) == b""):
        raise Unpackable(f"its ZLIB payload does not open to {size} bytes")
    return found


def _stream(size: int, payload: bytes | bytearray) -> bytes:
    """Piece by piece: a size that is not true takes no memory."""
    source, found = pa.CompressedInputStream(pa.py_buffer(payload), "zstd"), bytearray()
    while len(found) <= size and (piece := source.read(min(_PIECE, size + 1 - len(found)))):
        found += piece
    if len(found) != size:
        raise Unpackable(f"its ZSTD payload does not open to {size} bytes")
    return bytes(found)


def snappy_size(payload: bytes | bytearray) -> int:
    """What the first bytes of a block say."""
    size = 0
    for place, byte in enumerate(payload[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    return -1


def zstd_size(payload: bytes | bytearray) -> int | None:
    """What the header of a frame says; None: it does not. The codec holds the frame to it."""
    if payload[:4] != b"\x28\xb5\x2f\xfd" or len(payload) < 6:
        return -1
    told, alone, dictionary = payload[4] >> 6, payload[4] >> 5 & 1, payload[4] & 3
    width = (1 if alone else 0, 2, 4, 8)[told]
    if width == 0:
        return None
    at = 5 + (0 if alone else 1) + (0, 1, 2, 4)[dictionary]
    size = int.from_bytes(payload[at : at + width], "little")
    return size + 256 if width == 2 else size
