"""Format the report of a job as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    """The result of a job."""

    def record(self) -> dict[str, Any]:
        """Return the report for `--json`."""
        return asdict(self)

    def table(self) -> str:
        """Return the report as text."""
        raise NotImplementedError


def short(topic: str) -> str:
    """Shorten a topic's name."""
    return topic.removeprefix("persistent://").removeprefix("public/default/")


def readable(name: str) -> str:
    """Escape a name that a user gave: one line, without control characters.

    Example:
        >>> readable("rig\\n\\x1b[2J")
        'rig\\\\n\\\\x1b[2J'
    """
    return name if name.isprintable() else repr(name)[1:-1]
