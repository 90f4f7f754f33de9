"""How arguments are read: sizes, times and counts, and the parts that every command shares."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Usage(Exception):
    """The arguments do not fit together: exit status 2."""


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


def count(text: str) -> int:
    """1 or more."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def mode(text: str) -> int:
    """Octal, as for chmod."""
    if re.fullmatch(r"(0o)?[0-7]{3,4}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a mode such as 600 or 660")
    return int(text.removeprefix("0o"), 8)


def command(
    parent: Subparsers, name: str, summary: str, description: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """A command with the options that all have who look at segments. `run` answers with the exit status."""
    parser, shared = bare_command(parent, name, summary, description, run)
    shared.add_argument(
        "--directory",
        metavar="DIR",
        help="directory of the segments (default $HOLDFAST_RUNTIME_DIR, else /dev/shm)",
    )
    return parser


def bare_command(
    parent: Subparsers, name: str, summary: str, description: str, run: Callable[[argparse.Namespace], int]
) -> tuple[argparse.ArgumentParser, argparse._ArgumentGroup]:
    """A command that only has `--json`, and the group for what else it shares with its neighbours."""
    parser = parent.add_parser(
        name, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = parser.add_argument_group("everywhere")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser, shared
