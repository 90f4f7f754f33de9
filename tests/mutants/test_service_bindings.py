"""Mutants of a service's holds, parameters and bindings.

One extension has all of them, and each is chosen at run time. For `make nightly`, because of the compiler.
The tests that they name run in `make check` and `make test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import sanitised
from tests.kit.native import Mutant
from tests.kit.service.binding_mutants import MUTANTS

# In `make test`: tests/unit/service/test_damage.py, test_threads.py, and the others that the mutants name.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def package() -> Path:
    return sanitised.package("service", ("-O1",), MUTANTS)


def test_without_a_mutant_nothing_is_noticed(package: Path) -> None:
    for tests in sorted({mutant.program for mutant in MUTANTS}):
        assert not sanitised.noticed(package, tests, 0), tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(package: Path, mutant: Mutant) -> None:
    assert sanitised.noticed(package, mutant.program, 1 + MUTANTS.index(mutant)), mutant.breaks
