"""How places in a topic are read: message ids, times, and the two ends."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from holdfast.ids import MessageId

Place = Literal["earliest", "latest"] | MessageId | datetime

SPANS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
PLACED = ("--start", "--to-message", "--to-time", "--event-time", "--older-than")
"""Options whose value is a position, a time or an age."""
AGO = re.compile(r"-(\d+(?:\.\d+)?)([smhdw])")


def message_id(text: str) -> MessageId:
    """7:42, or 7:42:3 for the fourth message of a batch."""
    found = re.fullmatch(r"(\d{1,19}):(\d{1,19})(?::(\d{1,9}))?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a message id such as 7:42 (ledger and entry) or 7:42:3 (and place in its batch)"
        )
    return MessageId(int(found[1]), int(found[2]), -1 if found[3] is None else int(found[3]))


def moment(text: str) -> datetime:
    """Read 2026-11-15T08:30:00Z, or -2h: two hours ago. The default zone is UTC."""
    ago = AGO.fullmatch(text.strip())
    if ago is not None:
        try:
            return datetime.now(UTC) - timedelta(**{SPANS[ago[2]]: float(ago[1])})
        except OverflowError:
            raise argparse.ArgumentTypeError(f"{text!r} is before the first year that has a number") from None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-15T08:30:00Z, 2026-11-15 or -2h (s, m, h, d, w ago)"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def place(text: str) -> Place:
    """earliest, latest, a message id, or a time."""
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if re.match(r"\d+:\d+(:\d+)?$", text):
        return message_id(text)
    try:
        return moment(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither earliest nor latest, nor a message id such as 7:42, nor a time such as "
            "2026-11-15T08:30:00Z or -2h"
        ) from None


def span(text: str) -> float:
    """30s, 15m, 2h, 7d, 1w, or plain seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span of time such as 30s, 15m, 2h or 7d")
    try:
        return timedelta(**{SPANS[found[2] or "s"]: float(found[1])}).total_seconds()
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than anything will last") from None


def joined(arguments: Sequence[str]) -> list[str]:
    """`--to-time -2h` as `--to-time=-2h`: the parser would take the value for another option."""
    result: list[str] = []
    for argument in arguments:
        before = result[-1] if result else ""
        ago = AGO.fullmatch(argument) and re.fullmatch(r"--[a-z-]+", before)
        if ago or (before in PLACED and re.match(r"-\d", argument)):  # the second is refused by its value
            result[-1] += f"={argument}"
        else:
            result.append(argument)
    return result
