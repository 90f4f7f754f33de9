"""Mutants of the core's headers: each changes a copy, over which a native test is run that must notice.

Each names a text that must occur exactly once in its file, so that a mutant cannot silently become none.
Blanks and line breaks do not count: a formatter may move them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kit import ROOT

FLAGS = ("-std=c++20", "-O0", "-pthread")
THREAD_SANITIZER = ("-std=c++20", "-O1", "-g", "-pthread", "-fsanitize=thread", "-Wno-tsan")


@dataclass(frozen=True)
class NativeMutant:
    name: str
    breaks: str
    file: str
    old: str
    new: str
    program: str = ""  # the native test that kills it


def patched(text: str, mutant: NativeMutant) -> str:
    places = [i for i, letter in enumerate(text) if not letter.isspace()]
    packed = "".join(text[i] for i in places)
    wanted = "".join(mutant.old.split())
    count = packed.count(wanted)
    assert count == 1, f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once"
    start = packed.index(wanted)
    return text[: places[start]] + mutant.new + text[places[start + len(wanted) - 1] + 1 :]


def run_over(
    mutant: NativeMutant | None, source: Path, flags: tuple[str, ...] = FLAGS
) -> subprocess.CompletedProcess[str]:
    """Compiles a program against the headers, changed as the mutant says, and runs it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        native = Path(directory) / "native"
        shutil.copytree(ROOT / "native/holdfast", native / "holdfast")
        if mutant is not None:
            header = native / "holdfast" / mutant.file
            header.write_text(patched(header.read_text(), mutant))
        binary = Path(directory) / "program"
        compiler = os.environ.get("CXX", "g++")
        command = [compiler, *flags, f"-I{native}", f"-I{ROOT / 'native/tests'}", str(source)]
        subprocess.run([*command, "-o", str(binary)], check=True, capture_output=True)
        environment = {**os.environ, "HOLDFAST_RUNTIME_DIR": directory}
        return subprocess.run([str(binary)], env=environment, capture_output=True, text=True, timeout=100)
