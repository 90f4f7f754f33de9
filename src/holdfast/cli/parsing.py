"""How arguments are read: sizes, times and counts, and the parts that every command shares."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from holdfast import _core
from holdfast.errors import HoldfastError, Misuse, Unsupported
from holdfast.names import checked_name, namespace_name, topic_name

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Usage(Exception):
    """The arguments do not fit together: exit status 2."""


def require_for_demo(needed: Mapping[str, str]) -> None:
    """Raise Usage if a module is not installed; `needed` has the requirement that brings it.

    Example:
        >>> require_for_demo({"json": "python"})
    """
    missing = sorted({name for module, name in needed.items() if importlib.util.find_spec(module) is None})
    if missing:
        raise Usage(f"the demo needs more than is installed: pip install {' '.join(map(repr, missing))}")


DIGITS_MAX = 18
"""Of a count: it fits into the 63 bits that the broker has for one."""
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """65536, 64k, 64M, 1G, 64KiB: powers of 1024."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 65536, 64k, 64M or 1G")
    return int(found[1]) * UNITS[found[2]]


def seconds(text: str) -> float:
    """0 or more, as a decimal number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def rate(text: str) -> float:
    """More than 0: a demo without messages shows nothing."""
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def interval(text: str) -> float:
    """Seconds between two looks: at least 0.01."""
    value = seconds(text)
    if value < 0.01:
        raise argparse.ArgumentTypeError(f"{text!r} is too short; use at least 0.01 seconds")
    return value


def count(text: str) -> int:
    """1 or more."""
    if not text.isdecimal() or not 0 < len(text) <= DIGITS_MAX or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def mode(text: str) -> int:
    """Octal, as for chmod."""
    if re.fullmatch(r"(0o)?[0-7]{3,4}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a mode such as 600 or 660")
    return int(text.removeprefix("0o"), 8)


def topic(text: str) -> str:
    """A topic's name, as the user wrote it."""
    return _named(text, topic_name)


def namespace(text: str) -> str:
    """A namespace's name, tenant/namespace."""
    return _named(text, namespace_name)


def subscription(text: str) -> str:
    """A subscription's name."""
    return _named(text, lambda name: checked_name(name, "a subscription"))


def role(text: str) -> str:
    """A role's name."""
    return _named(text, lambda name: checked_name(name, "a role"))


def producer(text: str) -> str:
    """A producer's name."""
    return _named(text, lambda name: checked_name(name, "a producer"))


def queue(text: str) -> str:
    """A queue's name. The core has the rule, and looks at the name first."""

    def check(name: str) -> None:
        try:
            _core.inspect(os.devnull, name)  # there is no queue in a file
        except HoldfastError as error:
            if isinstance(error, Misuse):
                raise

    return _named(text, check)


def _named(text: str, check: Callable[[str], object]) -> str:
    try:
        check(text)
    except (Misuse, Unsupported) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def command(
    parent: Subparsers, name: str, summary: str, description: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command on segments, with --directory; `run` returns the exit status."""
    parser, shared = bare_command(parent, name, summary, description, run)
    declare(shared)("""
        --directory DIR: directory of the segments (default $HOLDFAST_RUNTIME_DIR, else /dev/shm)
        """)
    return parser


def bare_command(
    parent: Subparsers, name: str, summary: str, description: str, run: Callable[[argparse.Namespace], int]
) -> tuple[argparse.ArgumentParser, argparse._ArgumentGroup]:
    """Add a command with `--json`; returns also the group of its shared options."""
    parser = parent.add_parser(
        name, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = parser.add_argument_group("common options")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, parser=parser)
    return parser, shared


_TYPES: dict[str, Callable[[str], object]] = {"SIZE": size, "N": count, "S": seconds}
"""By the metavar of an option, unless its declaration names another."""


def declare(
    parser: argparse._ActionsContainer,
    types: Mapping[str, Callable[[str], object]] | None = None,
    **more: object,
) -> Callable[[str], None]:
    """Return a function that adds arguments from a table; `more` are their defaults.

    A line is an argument, with its help behind a colon; an indented line continues the one before it.
    `--flag` is true or false, `--size SIZE` has a value, `--to! DIR` is required, `--kind one|two` is a
    choice. `name NAME`, `name [NAME]`, `names NAME...` and `names [NAME...]` are positional.
    """

    def add(table: str) -> None:
        for line in re.sub(r"\n +", " ", textwrap.dedent(table).strip()).split("\n"):
            usage, _, words = line.partition(": ")
            name, _, shown = usage.partition(" ")
            metavar, key = shown.strip("[.]"), name.strip("-!").replace("-", "_")
            given: dict[str, Any] = {"help": words or None}
            if name.endswith("!"):
                given["required"] = True
            if key in more:
                given["default"] = more[key]
            if not shown:
                given["action"] = "store_true"
            elif "|" in shown:
                given["choices"] = tuple(shown.split("|"))
            else:
                given["metavar"] = metavar
                given["type"] = (types or {}).get(key) or _TYPES.get(metavar)
            if shown != metavar:
                given["nargs"] = "+" if shown[0] != "[" else "*" if "..." in shown else "?"
            parser.add_argument(name.strip("!"), **given)

    return add
