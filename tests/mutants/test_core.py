"""Mutants of the core: each changes a header, and a native test must notice.

All of them are compiled together and chosen at run time (kit/native.py). The same build without a mutant
passes, so a failure shows the change.
"""

from __future__ import annotations

import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import native
from tests.kit.native import CHOICE, Mutant
from tests.kit.native_mutants import MUTANTS as ALL
from tests.kit.server.fuzz_wire import keep_stream, write_corpus

FLAGS = ("-O0", "-w", "-include", "holdfast/mutant_switch.hpp")
X86 = platform.machine() == "x86_64"
MUTANTS = tuple(mutant for mutant in ALL if X86 or mutant.name != "fold-too-far")
"""Folding is compiled for x86 alone; there its factors are checked on every processor."""
TOGETHER = tuple(mutant for mutant in MUTANTS if not mutant.alone)
ALONE = tuple(mutant for mutant in MUTANTS if mutant.alone)
PROGRAMS = sorted({mutant.program for mutant in TOGETHER})
CORPUS = "HOLDFAST_CORPUS"
PATIENCE = {"HOLDFAST_TEST_PATIENCE_MS": "3000"}


def build_unit(folder: Path, unit: str) -> Path:
    programs = [program for program in PROGRAMS if native.unit_of(program) == unit]
    return native.built(f"mutants-{unit}", native.unit_source(folder, programs), folder, FLAGS)


def build_alone(mutant: Mutant) -> Path:
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant.") as scratch:
        folder = Path(scratch)
        native.with_all((), folder)
        header = folder / "holdfast" / mutant.file
        header.write_text(native.patched(header.read_text(), mutant))
        source = native.unit_source(folder, [mutant.program])
        return native.built(f"mutant-{mutant.name}", source, folder, FLAGS)


@dataclass(frozen=True)
class Builds:
    """Futures of programs: one per unit, and one per mutant that is compiled alone."""

    units: dict[str, Future[Path]]
    alone: dict[str, Future[Path]]
    numbers: dict[str, int]
    corpus: Path

    def verdict(self, mutant: Mutant) -> str:
        """Return the output of the failing native test; empty if it passed."""
        binary = (self.alone.get(mutant.name) or self.units[native.unit_of(mutant.program)]).result()
        choice = {CHOICE: str(self.numbers.get(mutant.name, 0)), CORPUS: str(self.corpus)}
        try:
            done = native.execute(binary, mutant.program, **choice, **PATIENCE)
        except subprocess.TimeoutExpired:
            return "it never ended"
        return done.stderr or f"status {done.returncode}" if done.returncode else ""


@pytest.fixture(scope="module")
def builds() -> Iterator[Builds]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-mutants.") as scratch,
        ThreadPoolExecutor(2) as pool,
    ):
        folder = Path(scratch)
        numbers = native.with_all(TOGETHER, folder)
        yield Builds(
            {unit: pool.submit(build_unit, folder, unit) for unit in native.UNITS},
            {mutant.name: pool.submit(build_alone, mutant) for mutant in ALONE},
            numbers,
            write_corpus(folder / "corpus"),
        )


@pytest.mark.timeout(600)  # the first tests wait for the compiler
@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_mutant_nothing_is_noticed(program: str, builds: Builds) -> None:
    binary = builds.units[native.unit_of(program)].result()
    done = native.execute(binary, program, **{CORPUS: str(builds.corpus)})
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, builds: Builds) -> None:
    said = builds.verdict(mutant)
    assert said, f"nothing noticed that {mutant.breaks}"
    print(said)


@pytest.mark.timeout(600)
def test_the_stream_that_showed_a_mutant_is_kept(builds: Builds, tmp_path: Path) -> None:
    """As a night keeps it: this stream alone, with few changes, shows the mutant again."""
    [mutant] = [each for each in MUTANTS if each.name == "rest-forgotten"]
    binary = builds.units[native.unit_of(mutant.program)].result()

    def judged(number: int, corpus: Path) -> int:
        note = {"HOLDFAST_CORPUS_FOUND": str(tmp_path / "note"), CHOICE: str(number), CORPUS: str(corpus)}
        return native.execute(binary, mutant.program, **note).returncode

    assert judged(builds.numbers[mutant.name], builds.corpus) == 1
    keep_stream(tmp_path / "note", tmp_path / "streams")
    assert judged(builds.numbers[mutant.name], tmp_path / "streams") == 1
    assert judged(0, tmp_path / "streams") == 0


def test_how_many(counts: Callable[[str], None]) -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    counts(f"{len(MUTANTS)} mutants of the core in {len(native.UNITS)} builds and {len(ALONE)} of their own")
