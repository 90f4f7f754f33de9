"""Patterns of topics' names, as clients send them. Whoever sends one may send a costly one.

So it is matched by the core's `NamePattern`, whose time grows with the names alone; what that cannot match is
left to the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast._core import NamePattern, crc32c

_PARTITION = re.compile(r"-partition-\d+$")


class Shown(NamedTuple):
    """Topics as patterns see them."""

    names: list[str]
    """Each once; a partition is as its topic."""
    topics: dict[str, list[str]]
    """Which topics each name stands for."""


def shown_of(topics: Iterable[str], whole: bool) -> Shown:
    """What patterns see of topics: their full names, or what stands behind `://`.

    Example:
        >>> shown_of(["persistent://public/default/a-partition-0"], whole=False).names
        ['public/default/a']
    """
    found: dict[str, list[str]] = {}
    for topic in topics:
        name = topic if whole else topic.partition("://")[2]
        found.setdefault(_PARTITION.sub("", name), []).append(topic)
    return Shown(list(found), found)


class TopicPattern:
    """A client's pattern, as it is meant: with `://` in it for full names, else for what stands behind that.

    A partition is as its topic. Raises Misuse or Unsupported where it cannot be matched here.

    Example:
        >>> TopicPattern("public/default/or.*").select(["persistent://public/default/orders"])
        ['persistent://public/default/orders']
    """

    def __init__(self, text: str) -> None:
        self.whole = "://" in text
        self._pattern = NamePattern(text)

    def select(self, topics: Iterable[str]) -> list[str]:
        """Those that it matches. Other threads run meanwhile."""
        return self.select_shown(shown_of(topics, self.whole))

    def select_shown(self, shown: Shown) -> list[str]:
        """The same, of topics that were prepared before."""
        return [topic for name in self._pattern.select(shown.names) for topic in shown.topics[name]]


def hash_of(topics: Iterable[str]) -> str:
    """By which both sides see that they know the same: of the sorted names, in the order of its bytes.

    Example:
        >>> hash_of(["b", "a"]) == hash_of(["a", "b"])
        True
    """
    return crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()
