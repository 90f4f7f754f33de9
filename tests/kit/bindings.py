"""Build the package with a mutant in its bindings, and run tests with it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from tests.kit import ROOT
from tests.kit.native import Mutant, patched


def core_with(mutant: Mutant, directory: Path) -> Path:
    """Build the package with one source of its bindings changed; return its parent folder."""
    objects = next(path.parent for path in ROOT.glob("build/*/compile_commands.json") if built(path.parent))
    source = ROOT / "native/bindings" / mutant.file
    entries = json.loads((objects / "compile_commands.json").read_text())
    (entry,) = [each for each in entries if Path(each["file"]) == source]
    changed = directory / source.name
    changed.write_text(patched(source.read_text(), mutant))
    words = shlex.split(entry["command"])
    words = [*words[: words.index("-o")], "-c", str(changed)]
    subprocess.run([*words, "-o", f"{changed}.o"], check=True, capture_output=True, cwd=objects)
    linked = [str(object_of(each)) for each in entries if is_binding(each) and each is not entry]
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


def is_binding(entry: dict[str, str]) -> bool:
    return Path(entry["file"]).is_relative_to(ROOT / "native/bindings")


def object_of(entry: dict[str, str]) -> Path:
    """Return the object of a source; objects of moved sources may lie beside it."""
    words = shlex.split(entry["command"])
    return Path(entry["directory"]) / words[words.index("-o") + 1]


def built(folder: Path) -> bool:
    return any(folder.glob("_core.*.so"))


def importing(package: Path) -> str:
    """Return the first lines of a program: they import `holdfast` from that folder."""
    return (
        "import sys\n"
        "sys.meta_path = [each for each in sys.meta_path if 'ScikitBuild' not in type(each).__name__]\n"
        f"sys.path.insert(0, {str(package)!r})\n"
        "import holdfast._core\n"
        f"assert holdfast._core.__file__.startswith({str(package)!r}), holdfast._core.__file__\n"
    )


def pytest_with(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests in which `holdfast` is that package, not the installed one."""
    program = f"{importing(package)}import pytest\nsys.exit(pytest.main(sys.argv[1:]))\n"
    command = [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
