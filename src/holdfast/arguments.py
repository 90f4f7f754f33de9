"""Checks of arguments: an error names the argument, its value and the allowed values."""

from __future__ import annotations

import inspect
import math
import operator
import os
from typing import Any

from holdfast.errors import Misuse

LONGEST_S = 1e9
"""The wait that stands for one without end, where seconds are added to a clock."""


def checked_timeout(seconds: Any) -> float | None:
    """Return the seconds of a timeout; None for a wait without end.

    Example:
        >>> checked_timeout(1), checked_timeout(None), checked_timeout(10**400)
        (1.0, None, None)

    Raises:
        TypeError: `seconds` is of another type.
        Misuse: `seconds` is below 0, or not a number.
    """
    if seconds is None:
        return None
    if type(seconds) is float and 0 <= seconds < math.inf:  # the usual case first: each message calls this
        return seconds
    try:
        refused = math.isnan(seconds) or seconds < 0
        value = float(seconds)
    except OverflowError:  # larger than every float
        refused, value = seconds < 0, math.inf
    except TypeError:
        raise TypeError(f"timeout must be None or a number of seconds, not {seconds!r}") from None
    if refused:
        raise Misuse(f"timeout must be None or at least 0 seconds, not {value}")
    return None if value == math.inf else value


def checked_patience(seconds: Any) -> float:
    """Return a timeout as seconds to add to a clock; 31 years for None.

    Raises:
        TypeError, Misuse: as `checked_timeout`.
    """
    found = checked_timeout(seconds)
    return LONGEST_S if found is None else min(found, LONGEST_S)


def checked_whole(name: str, value: Any, words: str = "") -> int:
    """Return a whole number as int; `words` says more of it in the error.

    Example:
        >>> checked_whole("capacity", 1 << 20)
        1048576

    Raises:
        Misuse: `value` is of another type.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise Misuse(f"{name} must be a whole number{words}, not {value!r}")


def require_seconds(name: str, value: Any, least: float, most: float) -> None:
    """Refuse a value that is not a number of seconds in this range.

    Raises:
        Misuse: `value` is of another type, or out of range.
    """
    if not isinstance(value, int | float) or not least <= value <= most:
        raise Misuse(f"{name} must be {least:g} to {most:.0f} seconds, not {value!r}")


def require_text(name: str, value: Any) -> None:
    """Refuse a value that is not text, or cannot be written in UTF-8.

    Raises:
        Misuse: `value` is of another type, or has half of a surrogate pair in it.
    """
    if not isinstance(value, str):
        raise Misuse(f"{name} must be text (str), not {value!r}")
    if not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
        raise Misuse(f"{name} {value!r} has half of a surrogate pair in it; use whole characters")


def checked_path(name: str, value: Any) -> str:
    """Return a path as text.

    Raises:
        Misuse: `value` is not a path.
    """
    try:
        path = os.fspath(value)
    except TypeError:
        raise Misuse(f"{name} must be a path (str or Path), not {value!r}") from None
    return os.fsdecode(path)


def require_function(what: str, value: Any) -> None:
    """Check a function that a thread will call; `what` names it in the error.

    Raises:
        Misuse: it cannot be called, or is a coroutine function, whose call would run nothing.
    """
    if not callable(value):
        raise Misuse(f"{what} must be a function, not {value!r}")
    if inspect.iscoroutinefunction(value):
        raise Misuse(f"{what} cannot be a coroutine function: {value!r}; it runs in a thread")
