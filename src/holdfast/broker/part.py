"""The base of all parts of a snapshot."""

from __future__ import annotations


class Part:
    """One part of a snapshot. It is encoded again only when it has changed."""

    packed: bytes | None = None
