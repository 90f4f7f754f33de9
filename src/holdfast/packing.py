"""Open compressed payloads of Pulsar's clients: ZLIB, and with Arrow's codecs LZ4, ZSTD and SNAPPY.

A producer says how long the payload was. The payload is used only if the bytes open to exactly that size. A
codec fills a buffer of the given size, and the part that it does not fill would be memory of this process.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

from holdfast._core import lz4_size

SIZE_MAX = 256 << 20
"""Limit for one message, opened, and for all its parts together. A few KiB can open to any size, and a reader
holds a message several times until it is a row. The Flight process needs memory for several readers."""
_PIECE = 1 << 20
_SNAPPY_MOST = 32
"""The highest ratio of SNAPPY: three bytes become at most 64."""
NAMES = {1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}


class Unpackable(ValueError):
    """The payload does not match what its producer says of it."""


@cache
def _arrow() -> Any:
    """Return Arrow's module, which few brokers need; they start without it."""
    import pyarrow as pa

    return pa


@cache
def _codec(name: str) -> Any:
    return _arrow().Codec(name)


def unpack(compression: int, size: int, payload: bytes | bytearray) -> Any:
    """Return the payload as its producer had it: a buffer of `size` bytes.

    Raises:
        Unpackable: it does not open, or not to this size; or pyarrow is missing, which the text says.
        MemoryError: this process has no memory now. The payload may be sound.
    """
    name = NAMES.get(compression)
    if name is None:
        raise Unpackable(f"its compression {compression} is unknown")
    if size > SIZE_MAX:
        raise Unpackable(f"its payload would have {size} bytes; the limit is {SIZE_MAX}")
    try:
        if compression == 2:
            return _zlib(size, payload)
    except zlib.error as error:
        raise Unpackable(f"its {name} payload does not open: {error}") from None
    try:
        pa = _arrow()
    except ImportError:
        raise Unpackable(f"its {name} payload needs the package pyarrow; install it") from None
    try:
        if compression == 1:
            return _exact("lz4_raw", size, payload, lz4_size(bytes(payload)))
        if compression == 3:
            told = zstd_size(payload)
            return _stream(size, payload) if told is None else _exact("zstd", size, payload, told)
        if size > _SNAPPY_MOST * len(payload):
            raise Unpackable(f"its SNAPPY payload of {len(payload)} bytes cannot open to {size}")
        return _exact("snappy", size, payload, snappy_size(payload))
    except MemoryError:
        raise  # Arrow's MemoryError is an ArrowException, too
    except (OSError, pa.ArrowException) as error:
        raise Unpackable(f"its {name} payload does not open: {error}") from None


def pack(compression: int, payload: bytes) -> bytes:
    """Compress a payload, as its producer did. The compression is one that `unpack` has opened."""
    if compression == 2:
        return zlib.compress(payload)
    codec = {1: "lz4_raw", 3: "zstd", 4: "snappy"}[compression]
    return bytes(_codec(codec).compress(payload, asbytes=True))


def _exact(codec: str, size: int, payload: bytes | bytearray, told: int) -> Any:
    if told != size:
        raise Unpackable(f"its payload opens to {told} bytes instead of {size}")
    return _codec(codec).decompress(payload, size) if size else b""


def _zlib(size: int, payload: bytes | bytearray) -> bytes:
    opener = zlib.decompressobj()
    found = opener.decompress(payload, size + 1)
    if len(found) != size or not (opener.eof or opener.decompress(opener.unconsumed_tail, 1) == b""):
        raise Unpackable(f"its ZLIB payload does not open to {size} bytes")
    return found


def _stream(size: int, payload: bytes | bytearray) -> bytes:
    """Open piece by piece, so that a wrong size costs no memory."""
    pa = _arrow()
    source, found = pa.CompressedInputStream(pa.py_buffer(payload), "zstd"), bytearray()
    while len(found) <= size and (piece := source.read(min(_PIECE, size + 1 - len(found)))):
        found += piece
    if len(found) != size:
        raise Unpackable(f"its ZSTD payload does not open to {size} bytes")
    return bytes(found)


def snappy_size(payload: bytes | bytearray) -> int:
    """Return the size in a block's first bytes; -1 if it is malformed."""
    size = 0
    for place, byte in enumerate(payload[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    return -1


def zstd_size(payload: bytes | bytearray) -> int | None:
    """Return the size in a frame's header; `None` without one, -1 if it is malformed."""
    if payload[:4] != b"\x28\xb5\x2f\xfd" or len(payload) < 6:
        return -1
    told, alone, dictionary = payload[4] >> 6, payload[4] >> 5 & 1, payload[4] & 3
    width = (1 if alone else 0, 2, 4, 8)[told]
    if width == 0:
        return None
    at = 5 + (0 if alone else 1) + (0, 1, 2, 4)[dictionary]
    size = int.from_bytes(payload[at : at + width], "little")
    return size + 256 if width == 2 else size
