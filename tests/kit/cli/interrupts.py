"""Run the command with a SIGINT at its n-th call of a function."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.entry import build

PROGRAM = """
import os, signal, sys
import holdfast.cli.entry as entry, holdfast_command

at, note = int(sys.argv[1]), sys.argv[2]
sys.argv[1:] = sys.argv[3:]
calls = 0

def count(*_):
    global calls
    calls += 1
    if calls == at:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

def counted(argv, run=entry.run):
    with open(note, "w") as file:
        file.write("0")
    sys.setprofile(count)
    try:
        return run(argv)
    finally:
        with open(note, "w") as file:
            file.write(str(calls))

entry.run = counted
sys.exit(holdfast_command.main())
"""
"""The script that an installer writes; calls are counted from the reading of the arguments on."""
LONG_S = 3.0
"""Time after which a command that waits is interrupted."""
END_S = 60.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    errors: str
    calls: int
    """Number of counted calls; 0: it ended while they were counted."""


def interrupted(at: int, arguments: Sequence[str], waits: bool, data: bytes = b"") -> Ended:
    """Run a command with an interrupt at a call, or while it waits."""
    with tempfile.NamedTemporaryFile() as note:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(at), note.name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            _, errors = process.communicate(data, LONG_S if waits else END_S)
        except subprocess.TimeoutExpired:
            try:
                while not Path(note.name).stat().st_size:  # Python itself still loads
                    assert process.poll() is None
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=END_S)
            finally:
                process.kill()
        return Ended(process.returncode, errors.decode(), int(Path(note.name).read_bytes() or b"0"))


def verbs(parser: argparse.ArgumentParser | None = None, words: str = "") -> Iterator[str]:
    """Yield all commands, such as `topic ls`."""
    parser = build() if parser is None else parser
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield words
    for each in below:
        for name, sub in each.choices.items():
            yield from verbs(sub, f"{words} {name}".strip())
