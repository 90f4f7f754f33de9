"""Patterns of topic names that clients send, matched by RE2.

Any client may send a costly pattern. RE2 takes time linear in the names, and a pattern holds at most
`PROGRAM_BYTES_MAX`. A pattern that RE2 cannot match is left to the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import re2

from holdfast._core import crc32c
from holdfast.errors import Misuse, Unsupported

PATTERN_BYTES_MAX = 1024
PROGRAM_BYTES_MAX = 1 << 16
"""Of a compiled pattern: its program, and the states that RE2 keeps while it matches."""
NAMES_AT_ONCE = 4096
"""Names that one call of RE2 sees; other threads run meanwhile."""

_PARTITION = re.compile(r"-partition-\d+$")
_NOT_BY_LINE = re.compile(r"\\[AzC]|\(\?\w*-\w*m")
_NOT_HERE = re.compile(
    r"invalid (?:perl|escape|repetition|character class range: \\p)|pattern too large|"
    r"bad repetition operator: .*\+$"
)
_QUOTED = re.compile(r"\\Q.*?\\E|\\[^Q]", re.DOTALL)
_OPEN_QUOTE = re.compile(r"\\Q.*", re.DOTALL)
_CLASS_IN_CLASS = re.compile(r"\[\^?\]?[^\[\]]*(?:\[|&&)")


class NamePattern:
    r"""A regular expression that matches whole names.

    Names are matched in bulk, one per line: `^` and `$` are the ends of a line. Nothing in a client's pattern
    matches a newline (`never_nl`); only `\C` does. Neighbours that match come as one run.

    Java and RE2 read `[a&&b]` and `[a[b]]` differently. Such a pattern is left to the client.

    Raises:
        Misuse: the pattern is malformed or too long.
        Unsupported: RE2 cannot match it, or not in `PROGRAM_BYTES_MAX`.
    """

    def __init__(self, text: str) -> None:
        size = len(text.encode())
        if size > PATTERN_BYTES_MAX:
            raise Misuse(f"the pattern has {size} bytes; at most {PATTERN_BYTES_MAX} are allowed")
        if _NOT_BY_LINE.search(text):
            raise Unsupported(rf"the pattern {text!r} has \A, \z, \C or (?-m); match with it in the client")
        _compiled(text)  # alone: a stray ) must not close the group below
        bare, open_quotes = _OPEN_QUOTE.subn("x", _QUOTED.sub("x", text))
        if _CLASS_IN_CLASS.search(bare):
            raise Unsupported(f"the pattern {text!r} has a class in a class; match with it in the client")
        if open_quotes:  # else the quotation would take in the end of the group below
            text += r"\E"
        self._lines = _compiled(rf"(?m)(?:^(?:{text})$\C)+")

    def __len__(self) -> int:
        """The instructions of the compiled pattern."""
        return int(self._lines.programsize)

    def select(self, names: Sequence[str]) -> list[str]:
        """List the names that match, in their order. Names have no newlines."""
        rest, found = iter(names), []
        while some := tuple(islice(rest, NAMES_AT_ONCE)):
            for run in self._lines.finditer("\n".join((*some, "")).encode()):
                found += run.group()[:-1].decode().split("\n")
        return found


def _compiled(text: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem, options.never_nl, options.never_capture = PROGRAM_BYTES_MAX, True, True
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        if _NOT_HERE.match(why):
            raise Unsupported(
                f"the server cannot match the pattern ({why}); match with it in the client"
            ) from None
        raise Misuse(f"the pattern is malformed: {why}") from None


class Shown(NamedTuple):
    """Topics as patterns see them."""

    names: list[str]
    """Each once; a partition has the name of its topic."""
    topics: dict[str, list[str]]
    """The topics that each name stands for."""


def shown_of(topics: Iterable[str], whole: bool) -> Shown:
    """Prepare topics for patterns: by their full names, or by the part behind `://`.

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
    """A client's pattern: of full names if it has `://`, else of the rest.

    A partition matches as its topic does. Raises Misuse or Unsupported as `NamePattern` does.

    Example:
        >>> TopicPattern("public/default/or.*").select(["persistent://public/default/orders"])
        ['persistent://public/default/orders']
    """

    def __init__(self, text: str) -> None:
        self.whole = "://" in text
        self._pattern = NamePattern(text)

    @property
    def size_bytes(self) -> int:
        """The approximate size when compiled: programs for both directions, with states."""
        return 64 * len(self._pattern)

    def select(self, topics: Iterable[str]) -> list[str]:
        """List the topics that match. Other threads run meanwhile."""
        return self.select_shown(shown_of(topics, self.whole))

    def select_shown(self, shown: Shown) -> list[str]:
        """Like `select`, for topics that were prepared before."""
        return [topic for name in self._pattern.select(shown.names) for topic in shown.topics[name]]


def hash_of(topics: Iterable[str]) -> str:
    """Hash a set of topics: CRC32C of the sorted names, in hexadecimal digits.

    Example:
        >>> hash_of(["b", "a"]) == hash_of(["a", "b"])
        True
    """
    return crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()
