"""Every mutant of services is caught in the space that its entry names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.native import Mutant
from tests.kit.queue import mutants
from tests.kit.service.mutants import MUTANTS

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, mutants.Verdict]:
    found = mutants.judge_all(MUTANTS, kind="service")
    print("\n" + mutants.table(found))
    return {verdict.mutant.name: verdict for verdict in found}


def test_without_a_mutant_nothing_is_caught() -> None:
    """The explorer with all mutants, and none in force, passes: only a change is caught."""
    explorer, _ = mutants.build_broken(MUTANTS, "service")
    verdict = mutants.judge(Mutant("none", "nothing", "", "", "", "service-take"), explorer, 0)
    assert not verdict.caught
    assert verdict.states > 1000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, verdicts: dict[str, mutants.Verdict]) -> None:
    verdict = verdicts[mutant.name]
    assert verdict.caught, f"{mutant.breaks}: {verdict.violation or 'survived'} ({verdict.states} states)"


def test_there_are_enough(verdicts: dict[str, mutants.Verdict], counts: Callable[[str], None]) -> None:
    assert len(MUTANTS) >= 50
    assert MUTANTS[0].name == "hold-without-writing"
    states = sum(verdict.states for verdict in verdicts.values())
    counts(f"{len(verdicts)} mutants of services in one build, caught within {states:,} states")
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
