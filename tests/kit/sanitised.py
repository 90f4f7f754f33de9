"""The extension built with a sanitizer, and with mutants chosen at run time (kit/native.py).

CPython itself is not built with it: the sanitizer's library is loaded before it. A build is kept below
build/, under a hash of its inputs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit import ROOT
from tests.kit.bindings import built, importing
from tests.kit.native import BUILD, CHOICE, NATIVE, SWITCH, Mutant, compiler, switched

COMPILERS = 2
"""Compilers that run at once."""
RUN_S = 1000
"""Hang limit of one program, in seconds."""
PYTEST = "import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))\n"
OPTIONS = ("-q", "-x", "-n0", "-p", "no:cacheprovider", "--timeout=60")


def written(mutants: Iterable[Mutant], folder: Path) -> dict[str, int]:
    """Write a copy of core and bindings with all mutants; return the number of each."""
    for part in ("holdfast", "bindings"):
        shutil.copytree(NATIVE / part, folder / part)
    numbers = {mutant.name: number for number, mutant in enumerate(mutants, 1)}
    for mutant in mutants:
        path = folder / mutant.file
        path.write_text(switched(path.read_text(), mutant, numbers[mutant.name]))
    (folder / "holdfast" / "mutant_switch.hpp").write_text(SWITCH)
    return numbers


def package(name: str, flags: Sequence[str], mutants: Sequence[Mutant] = ()) -> Path:
    """Return the folder to import the package from; compile it if necessary."""
    objects = next(path.parent for path in ROOT.glob("build/*/compile_commands.json") if built(path.parent))
    library = next(objects.glob("_core.*.so")).name
    folder = BUILD / "sanitised"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may compile the same
        native = folder / f"{name}.sources"  # always the same path, so that the compiler's cache hits
        shutil.rmtree(native, ignore_errors=True)
        native.mkdir()
        written(mutants, native)
        total = hashlib.sha256("\0".join([compiler(), sys.version, *flags]).encode())
        for path in sorted(native.rglob("*.?pp")):
            total.update(path.name.encode() + path.read_bytes())
        done = folder / f"{name}-{total.hexdigest()[:16]}"
        if not (done / library).exists():
            for stale in folder.glob(f"{name}-*"):
                shutil.rmtree(stale)
            compiled(objects, native, flags, Path(scratch, library))
            done.mkdir()
            Path(scratch, library).rename(done / library)
    importable = done / "package" / "holdfast"
    importable.mkdir(parents=True, exist_ok=True)
    for each in (*(ROOT / "src/holdfast").iterdir(), done / library):
        if not (importable / each.name).is_symlink():
            (importable / each.name).symlink_to(each)
    return importable.parent


def compiled(objects: Path, native: Path, flags: Sequence[str], library: Path) -> None:
    """Compile all sources of the bindings with `flags`, and link them."""
    entries = json.loads((objects / "compile_commands.json").read_text())

    def one(entry: dict[str, str]) -> str:
        source = native / Path(entry["file"]).relative_to(NATIVE)
        words = shlex.split(entry["command"])
        words = [word for word in words[: words.index("-o")] if word not in ("-O3", "-Werror")]
        words = [word.replace(str(NATIVE), str(native)) for word in words]
        switch = ["-include", "holdfast/mutant_switch.hpp"]
        run([*words, *flags, "-w", *switch, "-c", str(source), "-o", f"{source}.o"], objects)
        return f"{source}.o"

    ours = [entry for entry in entries if Path(entry["file"]).is_relative_to(NATIVE)]
    with ThreadPoolExecutor(COMPILERS) as pool:
        linked = list(pool.map(one, ours))
    run(
        [compiler(), "-shared", "-fPIC", *flags, *linked, "libnanobind-static.a", "-o", str(library)], objects
    )


def run(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(words)}\n{done.stderr}")


def runtime(name: str) -> str:
    """Return a sanitizer's libraries, to be loaded before CPython, which has no C++."""

    def library(each: str) -> str:
        words = [compiler(), f"-print-file-name=lib{each}.so"]
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        return str(Path(found).resolve())

    return f"{library(name)} {library('stdc++')}"


def python(
    importable: Path, library: str, program: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in which `holdfast` is that package, not the installed one."""
    return subprocess.run(
        # Fixed addresses: the sanitizers of some compilers do not know all address ranges of newer kernels.
        ["setarch", "-R", sys.executable, "-c", importing(importable) + program, *arguments],
        env={**os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc", **environment},
        capture_output=True,
        text=True,
        errors="replace",
        cwd=ROOT,
        timeout=RUN_S,
    )


def noticed(package: Path, tests: str, number: int) -> bool:
    """Return whether tests fail, or their process does, with this mutant in force."""
    environment = {CHOICE: str(number), "HOLDFAST_NIGHTLY": ""}
    done = python(package, os.environ.get("LD_PRELOAD", ""), PYTEST, *OPTIONS, tests, **environment)
    assert done.returncode in (0, 1) or done.returncode < 0, done.stdout + done.stderr
    return done.returncode != 0
