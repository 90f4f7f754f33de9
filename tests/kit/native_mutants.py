"""Mutants of the core's headers: each changes a copy, over which a native test is run that must notice.

Each names a text that must occur exactly once in its file, so that a mutant cannot silently become none.
Blanks and line breaks do not count: a formatter may move them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
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


def core_with(mutant: NativeMutant, directory: Path) -> Path:
    """Builds the package with one source of its bindings changed; answers where to import it from."""
    objects = next(path.parent for path in ROOT.glob("build/*/compile_commands.json") if built(path.parent))
    source = ROOT / "native/bindings" / mutant.file
    entries = json.loads((objects / "compile_commands.json").read_text())
    (entry,) = [each for each in entries if Path(each["file"]) == source]
    changed = directory / mutant.file
    changed.write_text(patched(source.read_text(), mutant))
    words = shlex.split(entry["command"])
    words = [*words[: words.index("-o")], "-I", str(source.parent), "-c", str(changed)]
    subprocess.run([*words, "-o", f"{changed}.o"], check=True, capture_output=True, cwd=objects)
    others = objects.glob("CMakeFiles/_core.dir/native/bindings/*.o")
    linked = [str(path) for path in others if path.name != f"{mutant.file}.o"]
    package = directory / "package" / "holdfast"
    package.mkdir(parents=True)
    for each in (ROOT / "src/holdfast").iterdir():
        (package / each.name).symlink_to(each)
    library = package / next(objects.glob("_core.*.so")).name
    subprocess.run(
        [words[0], "-shared", "-fPIC", *linked, f"{changed}.o", "libnanobind-static.a", "-o", str(library)],
        check=True,
        capture_output=True,
        cwd=objects,
    )
    return package.parent


def built(folder: Path) -> bool:
    return any(folder.glob("_core.*.so"))


def pytest_with(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs tests in which `holdfast` is that package, not the one that is installed in place."""
    program = (
        "import sys, pytest\n"
        "sys.meta_path = [each for each in sys.meta_path if 'ScikitBuild' not in type(each).__name__]\n"
        f"sys.path.insert(0, {str(package)!r})\n"
        "import holdfast._core\n"
        f"assert holdfast._core.__file__.startswith({str(package)!r}), holdfast._core.__file__\n"
        "sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
