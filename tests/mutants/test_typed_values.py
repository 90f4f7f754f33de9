"""Mutants of the decoder of typed values (tests/kit/pipeline/typed_mutants.py)."""

from __future__ import annotations

import pytest

from tests.kit.native import Mutant
from tests.kit.pipeline import typed_mutants
from tests.kit.pipeline.typed_mutants import MUTANTS

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def found() -> dict[str, bool]:
    return typed_mutants.run(MUTANTS)


def test_without_a_mutant_nothing_is_noticed(found: dict[str, bool]) -> None:
    assert found[""] is False
    assert len(MUTANTS) >= 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant: Mutant, found: dict[str, bool]) -> None:
    assert found[mutant.name], mutant.breaks
