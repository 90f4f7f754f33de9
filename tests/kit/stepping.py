"""Kill a process before every machine instruction of an operation (native/stepping).

The program is compiled with the options of the extension, so that the compiler makes the same of the core.
`python -m tests.kit.stepping --only put` prints the counts; `--list` the operations. Without `--kills` it
kills before each instruction. Only for x86-64, and where the kernel permits ptrace.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import native
from tests.kit.native import NATIVE

FLAGS = ("-O3", "-g1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fvisibility=hidden", "-Wl,-z,now")
"""Functions of shared libraries are found at the start (`now`): finding one is not part of an operation."""
SOURCE = '#include "stepping/main.cpp"\n'
SKIPPED = 77
LINE = re.compile(
    r"(?P<name>.+?) +(?P<instructions>\d+) instructions +(?P<kills>\d+) kills: "
    r"(?P<not_begun>\d+) not begun, (?P<recovered>\d+) recovered, (?P<done>\d+) done; .*"
)


@dataclass(frozen=True)
class Counts:
    """How many instructions one operation has, and what survivors found."""

    name: str
    instructions: int
    kills: int
    not_begun: int
    recovered: int
    done: int


@dataclass(frozen=True)
class Result:
    status: int
    output: str
    errors: str

    @property
    def counts(self) -> list[Counts]:
        """One of each operation and survivor; the last one is the sum."""
        found = [LINE.fullmatch(line) for line in self.output.splitlines()]
        return [
            Counts(each["name"], *(int(each[i]) for i in range(2, 7))) for each in found if each is not None
        ]


def build() -> Path:
    """Return the program, compiled if necessary."""
    skip_elsewhere(platform.machine())
    return native.built("stepping", SOURCE, NATIVE, FLAGS)


def run(binary: Path, *words: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Result:
    """Run the program in a directory of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        done = subprocess.run(
            [str(binary), *words],
            env={**os.environ, "HOLDFAST_RUNTIME_DIR": directory, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    if done.returncode == SKIPPED:
        skip_elsewhere(platform.machine(), done.stdout.strip().splitlines()[-1])
    return Result(done.returncode, done.stdout, done.stderr)


def skip_elsewhere(machine: str, refused: str = "") -> None:
    """Skip the test where no process can be single-stepped, and name the reason."""
    if machine != "x86_64":
        refused = f"single-stepping needs x86-64, not {machine}: LL/SC loops never end under it"
    if refused:
        pytest.skip(refused)


if __name__ == "__main__":
    sys.exit(subprocess.run([str(build()), *sys.argv[1:]]).returncode)
