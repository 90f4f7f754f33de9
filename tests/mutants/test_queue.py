"""Every mutant of the queue is caught in the configuration that its entry names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.native import Mutant, patched, switched
from tests.kit.queue import mutants

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, mutants.Verdict]:
    found = mutants.judge_all()
    print("\n" + mutants.table(found))
    return {verdict.mutant.name: verdict for verdict in found}


def test_without_a_mutant_nothing_is_caught() -> None:
    """The explorer with all mutants, and none in force, passes: only a change is caught."""
    explorer, _ = mutants.build_broken()
    none = Mutant("none", "nothing", "", "", "", "many")
    verdict = mutants.judge(none, explorer, 0)
    assert not verdict.caught
    assert verdict.states > 1000


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, verdicts: dict[str, mutants.Verdict]) -> None:
    verdict = verdicts[mutant.name]
    assert verdict.caught, f"{mutant.breaks}: {verdict.violation or 'survived'} ({verdict.states} states)"


def test_there_are_enough(verdicts: dict[str, mutants.Verdict], counts: Callable[[str], None]) -> None:
    assert len(mutants.MUTANTS) >= 12
    states = sum(verdict.states for verdict in verdicts.values())
    counts(f"{len(verdicts)} mutants of the queue in one build, caught within {states:,} states")
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)


def test_a_text_that_is_gone_is_an_error() -> None:
    mutant = Mutant("none", "", "queue/queue.hpp", "no such text", "", "wrap")
    with pytest.raises(ValueError, match="occurs 0 times"):
        patched("int x;", mutant)


def test_blanks_do_not_count_when_a_text_is_found() -> None:
    mutant = Mutant("one", "", "queue/queue.hpp", "f(a, b)", "g()", "wrap")
    assert patched("int x = f(a,\n        b);", mutant) == "int x = g();"


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("f(1);", "", "if (hf_mutant == 3) {  } else { f(1); }"),
        ("if (a > b) {", "if (false) {", "if (hf_mutant == 3 ? (false) : (a > b)) {"),
        ("a + b", "a", "(hf_mutant == 3 ? (a) : (a + b))"),
        ("int x = f();", "int x = MUTANT ? 0 : f();", "int x = (hf_mutant == 3) ? 0 : f();"),
    ],
)
def test_a_change_is_chosen_at_run_time(old: str, new: str, both: str) -> None:
    assert switched(f"before; {old} after;", Mutant("one", "", "x.hpp", old, new, ""), 3) == (
        f"before; {both} after;"
    )
