"""How arguments with few possible values are read, and settings as NAME=VALUE."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.cli.parsing import DIGITS_MAX, size
from holdfast.cli.positions import span
from holdfast.errors import Misuse

STRATEGIES = (
    *("ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
"""Which schemas may follow those of a topic, as the broker names them."""
SCHEMA_TYPES = (
    *("AUTO_CONSUME", "AVRO", "BOOLEAN", "BYTES", "DATE", "DOUBLE", "EXTERNAL", "FLOAT", "INSTANT"),
    *("INT16", "INT32", "INT64", "INT8", "JSON", "KEY_VALUE", "LOCAL_DATE", "LOCAL_DATE_TIME"),
    *("LOCAL_TIME", "PROTOBUF", "PROTOBUF_NATIVE", "STRING", "TIME", "TIMESTAMP"),
)
"""The types of schemas, as the server names them."""
ACTIONS = ("produce", "consume", "functions", "sources", "sinks", "packages")
"""The actions of permissions; `produce` and `consume` have an effect."""
PARTITIONS_MAX = 10_000


def one_of(names: Sequence[str], what: str) -> Callable[[str], str]:
    """Return a reader of one of some names, in small or capital letters.

    Example:
        >>> one_of(("FULL", "none"), "a strategy")("full")
        'FULL'
    """
    known = {name.lower(): name for name in names}

    def read(text: str) -> str:
        if text.strip().lower() not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}; use {', '.join(names)}")
        return known[text.strip().lower()]

    return read


strategy = one_of((*STRATEGIES, "default", "none"), "a strategy")
schema_type = one_of(SCHEMA_TYPES, "a type of schemas")


def actions(text: str) -> list[str]:
    """Read actions with commas between them; none: an empty list."""
    if text.strip().lower() == "none":
        return []
    read = one_of(ACTIONS, "an action")
    return [read(each) for each in text.split(",")]


def number(text: str) -> int:
    """Read 0 or more."""
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def policy(name: str, reader: Callable[[str], Any], default: bool = False) -> Callable[[str], Any]:
    """Return a reader of a policy's value, which refuses what is out of its range.

    With `default`, the word `default` is possible, too.
    """

    def read(text: str) -> Any:
        if default and text == "default":
            return text
        value = reader(text)
        from holdfast.broker import Policies  # late: other commands must not wait for it

        try:
            Policies(**{name: value}).require_sound()
        except Misuse as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


def partitions(text: str) -> int:
    """Read a number of partitions."""
    if not text.isdecimal() or not 1 <= int(text[:6]) <= PARTITIONS_MAX or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of partitions; use 1 to {PARTITIONS_MAX}")
    return int(text)


# -- settings ------------------------------------------------------------------------------------------


def setting(text: str) -> tuple[str, Any]:
    """Read a setting of a server as NAME=VALUE.

    Sizes and spans of time have their units. A name that this program does not know is left to the server,
    which may be newer.

    Example:
        >>> setting("broker.roll_bytes=1M"), setting("ttl_s=2h"), setting("deduplication=true")
        (('broker.roll_bytes', 1048576), ('ttl_s', 7200.0), ('deduplication', True))
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE with true, false, a text or a number, in seconds or bytes"
        )
    try:
        return name, _value(name.removeprefix("broker."), value)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be {value!r}: {error}") from None


def _value(name: str, text: str) -> Any:
    """Return the value of an option; raise ArgumentTypeError for one that is not possible."""
    from holdfast.broker import COUNT_MOST, BrokerOptions  # late: other commands must not wait for it

    value: Any = text
    if name.startswith("limits."):
        value = _numeric(name, text, whole=True)
        if not 0 <= value <= COUNT_MOST:
            raise argparse.ArgumentTypeError(f"use a whole number from 0 to {COUNT_MOST}")
        return value
    default = getattr(BrokerOptions(), name, None)
    if default is None:
        with contextlib.suppress(ValueError):
            value = json.loads(text)
        return value if isinstance(value, bool | int | float | str) else text
    if isinstance(default, bool):
        value = {"true": True, "false": False, "yes": True, "no": False}.get(text.lower(), text)
    elif isinstance(default, int | float):
        value = _numeric(name, text, whole=isinstance(default, int))
    missed = dict(BrokerOptions(**{name: value}).conflicts()).get(name)
    if missed:
        raise argparse.ArgumentTypeError(f"use {missed}")
    return value


def _numeric(name: str, text: str, whole: bool) -> int | float:
    """Read a number; of bytes also a size, of seconds also a span of time."""
    try:
        return int(text) if whole else float(text)
    except ValueError:
        pass
    if name.endswith("_bytes"):
        return size(text)
    if name.endswith("_s"):
        return span(text)
    raise argparse.ArgumentTypeError("use a whole number" if whole else "use a number")


def near(name: str, known: Sequence[str]) -> str:
    """Return words about the known name that is nearest."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {found[0]}?" if found else f"there are: {', '.join(known)}"
