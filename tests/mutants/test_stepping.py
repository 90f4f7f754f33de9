"""Mutants that only a death shows: killing before every instruction finds each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import native, stepping
from tests.kit.native import CHOICE, Mutant
from tests.kit.step_mutants import MUTANTS

pytestmark = pytest.mark.timeout(600)

FLAGS = ("-O1", "-w", "-Wl,-z,now", "-include", "holdfast/mutant_switch.hpp")
KILLS = "2000"
"""All instructions of most operations."""


@dataclass(frozen=True)
class Broken:
    """One program with all mutants."""

    binary: Path
    numbers: dict[str, int]

    def run(self, mutant: str, operation: str) -> stepping.Result:
        choice = {CHOICE: str(self.numbers.get(mutant, 0))}
        words = ("--only", operation, "--kills", KILLS)
        return stepping.run(self.binary, *words, timeout_s=300, environment=choice)


@pytest.fixture(scope="module")
def broken() -> Iterator[Broken]:
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants.") as scratch:
        folder = Path(scratch)
        numbers = native.with_all(MUTANTS, folder)
        yield Broken(native.built("mutants-stepping", stepping.SOURCE, folder, FLAGS), numbers)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, broken: Broken) -> None:
    """It is seen after a kill, by the first survivor."""
    result = broken.run(mutant.name, mutant.program)
    assert result.status == 1, f"nothing noticed that {mutant.breaks}"
    assert f"{mutant.program}, newcomer, killed before instruction" in result.errors
    print(result.errors)


def test_without_a_mutant_nothing_is_noticed(broken: Broken, counts: Callable[[str], None]) -> None:
    result = broken.run("", "settle")
    assert result.status == 0, result.errors
    counts(f"{len(MUTANTS)} mutants that only a death shows")
