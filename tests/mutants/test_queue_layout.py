"""Mutants of the queue's layout: each is a layout that this build would misread, and changes the fingerprint.

A layout is made of constants, which nothing can choose at run time. All variants are compiled in one program,
each in a namespace of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.kit.native import NATIVE, Mutant, compiler, patched

LAYOUT, TABLE, LOCKS = "queue/layout.hpp", "shm/participants.hpp", "shm/lock_bytes.hpp"
CHANGES = {
    "owner-of-11-bits": (LAYOUT, "kOwnerBits = 10;", "kOwnerBits = 11;"),
    "states-swapped": (LAYOUT, "done = 5, skip = 6,", "done = 6, skip = 5,"),
    "mark-without-known": (LAYOUT, "(length - 1) << 13 | u64{1} << 12", "(length - 1) << 13"),
    "lap-moved": (LAYOUT, "return 13 + shift_ - 1;", "return 13 + shift_;"),
    "count-elsewhere": (LAYOUT, "std::min(deliveries, kDeliveriesMax));", "deliveries & 1);"),
    "seal": (LAYOUT, "^ 0x5A5)", "^ 0x5A4)"),
    "controls-swapped": (LAYOUT, "head, read, tail,", "head, tail, read,"),
    "side-swapped": (LAYOUT, "u64 mark; u64 claimed_ms;", "u64 claimed_ms; u64 mark;"),
    "larger-sides": (LAYOUT, "granules_ * sizeof(SideEntry));", "granules_ * 32);"),
    "params-moved": (
        LAYOUT,
        "u32 participants; Delivery delivery;",
        "Delivery delivery; u32 participants;",
    ),
    "entry-moved": (TABLE, "u64 who; u64 since;", "u64 since; u64 who;"),
    "locks-elsewhere": (LOCKS, "off_t{1} << 40;", "off_t{1} << 39;"),
    "block-magic": ("base/block.hpp", "kBlockMagic = 0x4648;", "kBlockMagic = 0x4649;"),
}
MUTANTS = tuple(
    Mutant(name, "two builds would misread each other", *change, program="fingerprint")
    for name, change in CHANGES.items()
)


def variant(folder: Path, name: str, mutant: Mutant | None) -> str:
    """Write a copy of the headers with the change; return the text that includes it as a namespace."""
    shutil.copytree(NATIVE / "holdfast", folder / name)
    for header in (folder / name).rglob("*.hpp"):
        text = header.read_text().replace('#include "holdfast/', f'#include "{folder / name}/')
        if mutant is not None and header.relative_to(folder / name).as_posix() == mutant.file:
            text = patched(text, mutant)
        header.write_text(f"{text}// {name}\n")  # `#pragma once` takes equal files for the same
    return f'#define holdfast in_{name}\n#include "{folder / name / LAYOUT}"\n#undef holdfast\n'


@pytest.fixture(scope="module")
def prints() -> dict[str, str]:
    """The fingerprint of each layout, by the name of its mutant; the sound one's is "sound"."""
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
