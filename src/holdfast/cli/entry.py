"""From the arguments to the command, and from its errors to an exit status."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn

import holdfast
from holdfast.cli import (
    bench,
    broker,
    channel,
    cluster,
    credentials,
    demo,
    directory,
    doctor,
    exchange,
    namespace,
    pipeline,
    queue,
    schema,
    serve,
    service,
    subscription,
    top,
    topic,
)
from holdfast.cli.parsing import Usage
from holdfast.cli.positions import joined

DESCRIPTION = """\
Messages between processes that survive kill -9.

  holdfast demo                    processes are killed, no message is lost
  holdfast queue create orders     create a queue
  holdfast queue put orders hello  put a message
  holdfast queue get orders        get it
  holdfast queue stat orders       show what it holds and which processes are attached
  holdfast doctor                  check this machine and its queues

On disk, in a data directory:

  holdfast topic create orders --data DIR
  holdfast topic produce orders hello --data DIR
  holdfast topic consume orders --subscription billing --data DIR
  holdfast doctor DIR              check the directory
  holdfast serve --data DIR        serve it to Pulsar clients
  holdfast cluster status          show the cluster of a server
  holdfast top                     show live rates, backlogs and cursors of a server
  holdfast pipeline archive orders --data DIR --to ARCHIVE    write topics to Parquet"""


@functools.cache
def build() -> argparse.ArgumentParser:
    """Build the parser of all commands, once; each noun adds its own."""
    parser = argparse.ArgumentParser(
        prog="holdfast", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"holdfast {holdfast.__version__}")
    nouns = parser.add_subparsers(title="nouns", metavar="NOUN", required=True)
    for noun in (
        queue,
        channel,
        service,
        topic,
        subscription,
        exchange,
        namespace,
        schema,
        serve,
        broker,
        cluster,
        top,
        credentials,
        doctor,
        directory,
        pipeline,
        bench,
        demo,
    ):
        noun.add(nouns)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `holdfast`; return its exit status."""
    try:
        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt as interrupt:
        with warnings.catch_warnings(), quiet_finalisers():
            warnings.simplefilter("ignore")  # of coroutines that it broke off: they go with their frames
            interrupt.__traceback__ = None
        return 130


@contextlib.contextmanager
def quiet_finalisers() -> Iterator[None]:
    """Show no errors of finalisers: the interrupt broke off what they end."""
    shown = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = shown


def run(argv: Sequence[str]) -> int:
    """Parse the arguments and run their command; turn its errors into an exit status."""
    parser = build()
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of topics may have any characters
        sys.stdout.reconfigure(errors="backslashreplace")
    options, rest = parser.parse_known_args(joined(argv))
    # Older Pythons take an optional argument for absent when an option stands in front of it.
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "data", "") is None:
        options.data = rest.pop()
    if rest:
        refuse(getattr(options, "parser", parser), rest)
    try:
        status: int = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone. Nothing more can be said there, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Usage as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 2
    except (holdfast.HoldfastError, OSError) as error:
        if isinstance(error, holdfast.Stale):
            error.add_note("on the command line, `holdfast queue recover --adopt` does that")
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        print(f"holdfast: {described(error)}{notes}", file=sys.stderr)
        return 1
    return status


def refuse(parser: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """Exit with the usage of the command and the nearest options."""
    known = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    names = [each.partition("=")[0] for each in rest if each.startswith("--")]
    near = [found for each in names for found in difflib.get_close_matches(each, known, n=1)]
    hint = f"; did you mean {' and '.join(near)}?" if near else ""
    if names and set(names) <= set(known):
        hint = f"; write {' and '.join(names)} behind the command"
    parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")


def described(error: Exception) -> str:
    """Return the text of an error; a system error names its file."""
    if isinstance(error, holdfast.HoldfastError) or not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
