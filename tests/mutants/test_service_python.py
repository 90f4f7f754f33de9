"""Mutants of the Python layer of services (tests/kit/service/python_mutants.py)."""

from __future__ import annotations

import pytest

from tests.kit.native import Mutant
from tests.kit.service import python_mutants
from tests.kit.service.python_mutants import HANG, MUTANTS
from tests.kit.slices import pick

pytestmark = pytest.mark.timeout(400)

FAST = tuple(mutant for mutant in MUTANTS if mutant.name not in HANG)
CHOSEN = pick(test=FAST, nightly=MUTANTS)


@pytest.fixture(scope="module")
def found() -> dict[str, bool]:
    return python_mutants.run(CHOSEN)


def test_without_a_mutant_nothing_is_noticed(found: dict[str, bool]) -> None:
    assert found[""] is False
    assert len(MUTANTS) >= 15


@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant: Mutant, found: dict[str, bool]) -> None:
    assert found[mutant.name], mutant.breaks
