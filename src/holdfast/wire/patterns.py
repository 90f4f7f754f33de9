"""Patterns of topics' names, as clients send them. Whoever sends one may send a costly one.

So it is matched by the core's `NamePattern`, whose time grows with the names alone; what that cannot match is
left to the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast._core import NamePattern, crc32c

_PARTITION = re.compile(r"-partition-\d+$")


class TopicPattern:
    """A client's pattern, as it is meant: with `://` in it for full names, else for what stands behind that.

    A partition is as its topic. Raises Misuse or Unsupported where it cannot be matched here.

    Example:
        >>> TopicPattern("public/default/or.*").select(["persistent://public/default/orders"])
        ['persistent://public/default/orders']
    """

    def __init__(self, text: str) -> None:
        self._whole = "://" in text
        self._pattern = NamePattern(text)

    def select(self, topics: Iterable[str]) -> list[str]:
        """Those that it matches. Other threads run meanwhile."""
        shown: dict[str, list[str]] = {}
        for topic in topics:
            name = topic if self._whole else topic.partition("://")[2]
            shown.setdefault(_PARTITION.sub("", name), []).append(topic)
        found = self._pattern.select(list(shown))
        return [topic for name in found for topic in shown[name]]


def hash_of(topics: Iterable[str]) -> str:
    """By which both sides see that they know the same: of the sorted names, in the order of its bytes.

    Example:
        >>> hash_of(["b", "a"]) == hash_of(["a", "b"])
        True
    """
    return crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()
