"""The native tests: each program of native/tests is compiled with sanitizers and run.

A program that cannot do its work here ends with status 77 and says why; it is shown as skipped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import ROOT

PROGRAMS = sorted((ROOT / "native/tests").glob("test_*.cpp"))
FLAGS = [
    "-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", f"-I{ROOT / 'native'}",
]  # fmt: skip
SKIPPED = 77


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def digest(program: Path) -> str:
    """Of everything that decides what the binary is, so that an unchanged one is not compiled again."""
    total = hashlib.sha256(" ".join([compiler(), *FLAGS]).encode())
    for path in [program, *sorted((ROOT / "native").glob("*/*.hpp"))]:
        if path.parent.name in ("holdfast", "tests"):
            total.update(path.read_bytes())
    return total.hexdigest()[:16]


def compile_program(program: Path) -> Path:
    folder = ROOT / "build/native-tests"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / f"{program.stem}-{digest(program)}"
    if not binary.exists():
        for stale in folder.glob(f"{program.stem}-*"):
            if time.time() - stale.stat().st_mtime > 3600:  # a younger one may be another run's
                stale.unlink(missing_ok=True)
        partial = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [compiler(), *FLAGS, str(program), "-o", str(partial)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        partial.rename(binary)
    return binary


@pytest.fixture(scope="session")
def binaries() -> Iterator[dict[str, Future[Path]]]:
    """All programs, compiled two at a time while the first ones already run."""
    with ThreadPoolExecutor(2) as pool:
        yield {program.stem: pool.submit(compile_program, program) for program in PROGRAMS}


@pytest.mark.timeout(600)  # the first one waits for compilers that others may keep busy
@pytest.mark.parametrize("program", [program.stem for program in PROGRAMS])
def test_native(program: str, binaries: dict[str, Future[Path]]) -> None:
    binary = binaries[program].result()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        done = subprocess.run(
            [str(binary)],
            env={**os.environ, "HOLDFAST_RUNTIME_DIR": directory},
            capture_output=True,
            text=True,
            timeout=120,
        )
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
