"""Definitions of schemas of any size, all compatible with each other."""

from __future__ import annotations


def definition(size: int = 40, mark: str = "") -> bytes:
    """Return an Avro definition of so many bytes, which differs from those with another mark.

    Example:
        >>> definition(30, "7")
        b'{"type":"string","mark":"7  "}'
    """
    head, tail = f'{{"type":"string","mark":"{mark}', '"}'
    assert size >= len(head) + len(tail), f"a definition with the mark {mark!r} is longer than {size} bytes"
    return (head + " " * (size - len(head) - len(tail)) + tail).encode()
