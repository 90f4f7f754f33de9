"""Mutants of the queue's layout: each changes the fingerprint.

Each is a layout that this build would misread. A layout is made of constants, which cannot be chosen at run
time. All variants are compiled in one program, each in a namespace of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.kit.native import NATIVE, Mutant, compiler, patched
from tests.kit.queue.layout_mutants import CHANGES, LAYOUT, MUTANTS


def variant(folder: Path, name: str, mutant: Mutant | None) -> str:
    """Write changed headers; return the text that includes them as a namespace."""
    shutil.copytree(NATIVE / "holdfast", folder / name)
    for header in (folder / name).rglob("*.hpp"):
        text = header.read_text().replace('#include "holdfast/', f'#include "{folder / name}/')
        if mutant is not None and header.relative_to(folder / name).as_posix() == mutant.file:
            text = patched(text, mutant)
        header.write_text(f"{text}// {name}\n")  # `#pragma once` takes equal files for the same
    return f'#define holdfast in_{name}\n#include "{folder / name / LAYOUT}"\n#undef holdfast\n'


@pytest.fixture(scope="module")
def prints() -> dict[str, str]:
    """Return the fingerprint of each layout by its mutant; "sound" has none."""
    names = {"sound": "sound"} | {mutant.name: mutant.name.replace("-", "_") for mutant in MUTANTS}
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    with tempfile.TemporaryDirectory(prefix="holdfast-layouts.") as scratch:
        folder = Path(scratch)
        text = "".join(variant(folder, inner, by_name.get(name)) for name, inner in names.items())
        lines = "".join(
            f'std::printf("{name} %llx\\n", 0ull + in_{inner}::queue_fingerprint());\n'
            for name, inner in names.items()
        )
        source = folder / "prints.cpp"
        source.write_text(f"#include <cstdio>\n{text}int main() {{\n{lines}}}\n")
        binary = str(folder / "prints")
        command = [compiler(), "-std=c++20", "-O0", "-w", "-pthread", str(source), "-o", binary]
        built = subprocess.run(command, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        shown = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in shown.splitlines())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_change_of_the_layout_changes_the_fingerprint(mutant: Mutant, prints: dict[str, str]) -> None:
    assert prints[mutant.name] != prints["sound"], "two builds would not notice that they differ"


def test_every_layout_has_a_fingerprint_of_its_own(prints: dict[str, str]) -> None:
    assert set(prints) == {"sound", *CHANGES}
    assert len(set(prints.values())) == len(prints)
