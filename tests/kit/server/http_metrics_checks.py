"""Checks of metrics, for tests and for their mutants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kit.server.http_world import HttpWorld


class Sample(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'


VALUE = r"(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]Inf|NaN)"


LINE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}(?:,{LABEL})*)?)\}})? ({VALUE})")


def read(text: str) -> Iterator[Sample]:
    """Return the samples of a page.

    Raises:
        ValueError: the page breaks the format 0.0.4. Each metric must be in one group, with HELP and TYPE
        before it and once. No sample may repeat, and every line must end.
    """
    if text and not text.endswith("\n"):
        raise ValueError("the last line has no line end")
    described: dict[str, dict[str, str]] = {}
    current, seen, done = "", set[tuple[Any, ...]](), set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            found = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
            if found is None:
                raise ValueError(f"line {number}: {line}")
            kind, name, rest = found.groups()
            if name != current:
                if name in done:
                    raise ValueError(f"line {number}: {name} has a second group of samples")
                done.add(current)
                current = name
            if kind in described.setdefault(name, {}):
                raise ValueError(f"line {number}: a second {kind} of {name}")
            if any(key[0] == name for key in seen):
                raise ValueError(f"line {number}: {kind} of {name} behind its samples")
            if kind == "TYPE" and rest not in ("counter", "gauge", "histogram", "summary", "untyped"):
                raise ValueError(f"line {number}: {name} has the unknown type {rest}")
            described[name][kind] = rest
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: {line}")
        name, inside, value = match[1], match[2] or "", match[match.lastindex or 0]
        labels = tuple((each[1], unescaped(each[2])) for each in re.finditer(LABEL, inside))
        if name != current:
            raise ValueError(f"line {number}: {name} stands among {current}")
        if (name, labels) in seen or len({key for key, _ in labels}) < len(labels):
            raise ValueError(f"line {number}: a sample repeats: {line}")
        if set(described[name]) != {"HELP", "TYPE"}:
            raise ValueError(f"line {number}: {name} is not described")
        seen.add((name, labels))
        yield Sample(name, labels, float(value))


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def page_of(http: HttpWorld) -> list[Sample]:
    answer = http.ask("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return list(read(answer.body.decode()))


def value(http: HttpWorld, name: str, topic: str) -> float:
    full = f"persistent://public/default/{topic.rpartition('/')[2]}"
    found = [each for each in page_of(http) if each.name == name and ("topic", full) in each.labels]
    assert len(found) == 1, (name, found)
    return found[0].value
