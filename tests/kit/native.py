"""Native test programs, compiled in units, and mutants that are chosen at run time.

A unit is a program made of several tests of native/tests, so that headers and templates are compiled once.
Run as `unit test_log`, it does the same as test_log alone. A build is kept below build/, under a hash of its
inputs.

A mutant is one change to the text of a header. All of them are written into one copy of the headers, each
behind a condition (`hf_mutant == 7`), so that one build serves them all. HOLDFAST_MUTANT names the one in
force. Without it the copy must behave as the original does, which a test checks for every unit.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit import ROOT

NATIVE = ROOT / "native"
BUILD = ROOT / "build"
SOURCES = {path.stem: path.relative_to(NATIVE) for path in sorted((NATIVE / "tests").rglob("test_*.cpp"))}
"""The native tests by name, with their paths below native/."""
PROGRAMS = tuple(sorted(SOURCES))
UNITS = ("log", "rest")
CHOICE = "HOLDFAST_MUTANT"
RUN_S = 120
"""Hang limit of one program, in seconds."""
SWITCH = """#pragma once
#include <cstdlib>
inline const int hf_mutant = std::getenv("HOLDFAST_MUTANT") ? std::atoi(std::getenv("HOLDFAST_MUTANT")) : 0;
"""


def compiler() -> str:
    return os.environ.get("CXX", "g++")


# -- units --------------------------------------------------------------------------------------------


def unit_of(program: str) -> str:
    """Return the unit of a program; frames.hpp has an own Entry, and needs a unit."""
    text = (NATIVE / SOURCES[program]).read_text()
    return "log" if re.search(r'#include "tests/log/(frames|writer_world)\.hpp"', text) else "rest"


def unit_source(native: Path, programs: Sequence[str]) -> str:
    """Return the source of a program that runs the native test named by its argument."""
    sources = {name: native / SOURCES[name] for name in programs}
    heads = dict.fromkeys(
        line for path in sources.values() for line in path.read_text().splitlines() if line[:8] == "#include"
    )
    lines = [*heads, "#include <string_view>"]
    for name, path in sources.items():
        # `int main() {` becomes a function without a value, in a namespace of its own.
        lines += [f"#define main() unused_{name}(); void run_{name}()", f"namespace in_{name} {{"]
        lines += [f'#include "{path}"', "}", "#undef main"]
    lines += ["int main(int, char** words) {", "    const std::string_view name = words[1];"]
    lines += [f'    if (name == "{name}") return in_{name}::run_{name}(), 0;' for name in sources]
    return "\n".join([*lines, "    return 2;", "}", ""])


def built(name: str, source: str, native: Path, flags: Sequence[str]) -> Path:
    """Return the program of this source, compiled unless it is below build/ already."""
    total = hashlib.sha256("\0".join([compiler(), *flags, source.replace(str(native), "")]).encode())
    for path in sorted(
        path
        for part in ("holdfast/**/*.hpp", "tests/**/*.?pp", "fuzz/*", "stepping/*")
        for path in native.glob(part)
    ):
        total.update(path.name.encode() + path.read_bytes())
    folder = BUILD / "native-tests"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / f"{name}-{total.hexdigest()[:16]}"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may compile the same
        if binary.exists():
            return binary
        for stale in folder.glob(f"{name}-*"):
            stale.unlink()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            text = Path(scratch) / "unit.cpp"
            text.write_text(source)
            command = [compiler(), "-std=c++20", *flags, f"-I{native}", str(text), "-pthread", "-o"]
            done = subprocess.run([*command, f"{scratch}/unit"], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{name} does not compile:\n{done.stderr}")
            Path(scratch, "unit").rename(binary)
    return binary


def built_library(name: str, source: str) -> Path:
    """Return the shared library of this source, for LD_PRELOAD, compiled if necessary."""
    return built(f"lib{name}", source, NATIVE, ["-O1", "-shared", "-fPIC"])


def execute(binary: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one native test of a unit, with a directory of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        return subprocess.run(
            [str(binary), program],
            env={**os.environ, "HOLDFAST_RUNTIME_DIR": directory, **environment},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_S,
        )


# -- mutants ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A change to a header. `new` may use MUTANT, which `switched` makes a condition."""

    name: str
    breaks: str  # what is dropped, reordered or weakened
    file: str
    old: str
    new: str
    program: str  # the native test, or the configuration of the explorer, that notices
    alone: bool = False
    """It changes a constant, which cannot be chosen at run time: it is compiled by itself."""


def found(text: str, mutant: Mutant) -> tuple[int, int]:
    """Return the extent of the mutant's text; blanks, which a formatter moves, do not count."""
    places = [i for i, letter in enumerate(text) if not letter.isspace()]
    packed = "".join(text[i] for i in places)
    wanted = "".join(mutant.old.split())
    count = packed.count(wanted)
    if count != 1:
        raise ValueError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once")
    start = packed.index(wanted)
    return places[start], places[start + len(wanted) - 1] + 1


def patched(text: str, mutant: Mutant) -> str:
    """Return the text with the mutant's change."""
    begin, end = found(text, mutant)
    return text[:begin] + mutant.new.replace("MUTANT", "true") + text[end:]


def switched(text: str, mutant: Mutant, number: int) -> str:
    """Return the text with original and change, of which `hf_mutant` chooses one."""
    begin, end = found(text, mutant)
    old, new = text[begin:end], mutant.new
    chosen = f"hf_mutant == {number}"
    if "MUTANT" in new:
        both = new.replace("MUTANT", f"({chosen})")
    elif old.endswith(";") or (old.startswith("if (") and old.endswith("}")):
        both = f"if ({chosen}) {{ {new} }} else {{ {old} }}"
    elif old.startswith("if (") and old.endswith((")", ") {")):
        tail = " {" if old.endswith("{") else ""
        was, becomes = (part.removesuffix("{").rstrip()[3:] for part in (old, new))
        both = f"if ({chosen} ? {becomes} : {was}){tail}"
    else:
        both = f"({chosen} ? ({new}) : ({old}))"
    return text[:begin] + both + text[end:]


def with_all(mutants: Iterable[Mutant], folder: Path) -> dict[str, int]:
    """Write a copy of the sources with all mutants; return the number that chooses each."""
    for part in ("holdfast", "tests", "fuzz", "stepping"):
        shutil.copytree(NATIVE / part, folder / part)
    numbers = {mutant.name: number for number, mutant in enumerate(mutants, 1)}
    # Longer texts first: a text that is part of another one is unique after that one is replaced.
    for mutant in sorted(mutants, key=lambda each: -len("".join(each.old.split()))):
        path = folder / "holdfast" / mutant.file
        path.write_text(switched(path.read_text(), mutant, numbers[mutant.name]))
    (folder / "holdfast" / "mutant_switch.hpp").write_text(SWITCH)
    return numbers
