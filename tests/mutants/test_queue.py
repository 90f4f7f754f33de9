"""Every mutant of the queue is caught in the configuration that its entry names."""

from __future__ import annotations

import pytest

from tests.kit.queue import mutants

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, mutants.Verdict]:
    found = mutants.judge_all()
    print("\n" + mutants.table(found))
    return {verdict.mutant.name: verdict for verdict in found}


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: mutants.Mutant, verdicts: dict[str, mutants.Verdict]) -> None:
    verdict = verdicts[mutant.name]
    assert verdict.caught, f"{mutant.breaks}: {verdict.violation or 'survived'} ({verdict.states} states)"


def test_there_are_enough() -> None:
    assert len(mutants.MUTANTS) >= 12
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)


def test_a_text_that_is_gone_is_an_error() -> None:
    mutant = mutants.Mutant("none", "", "queue.hpp", "no such text", "", "wrap")
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutants.patched("int x;", mutant)


def test_blanks_do_not_count_when_a_text_is_found() -> None:
    mutant = mutants.Mutant("one", "", "queue.hpp", "f(a, b)", "g()", "wrap")
    assert mutants.patched("int x = f(a,\n        b);", mutant) == "int x = g();"
