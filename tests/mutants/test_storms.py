"""Kill storms on a broken queue, with a hundred kills of a plan of tests/torture/test_queue.py.

The explorer sees the mutants that they miss (tests/mutants/test_queue.py). One storm of fifty kills of each
plan missed recover-from-read, byte-early, scan-reads-late and return-unannounced.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.native import CHOICE
from tests.kit.queue import broken, storm

KILLS = 100
NOTICED = {
    "half-put-shown": "batches",
    "taken-released": "plain",
    "tail-before-read": "small ring",
    "inner-missing": "batches",
    "taken-handed-on": "at most once",
    "fence-frees": "stall limit",
    "commit-blind": "stall limit",
    "no-padding": "large messages",
}
# In `make test`: the explorer notices each of these mutants (tests/mutants/test_queue.py).
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    folder = tmp_path_factory.mktemp("broken")
    return folder, broken.build(folder)


@pytest.fixture
def chosen(build: tuple[Path, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Put the broken extension in force, without a mutant."""
    path = os.pathsep.join([str(build[0]), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv(CHOICE, "0")
    return monkeypatch


def faults(plan: str, seed: int) -> list[str]:
    """Return the faults of a storm; one that cannot be judged any more counts, too."""
    [found] = [each for each in storm.PLANS if each.name == plan]
    try:
        return storm.run(replace(found, kills=KILLS, seed=seed)).faults
    except RuntimeError as error:
        return [str(error)]


@pytest.mark.parametrize("plan", sorted(set(NOTICED.values())))
def test_without_a_mutant_nothing_is_noticed(plan: str, chosen: pytest.MonkeyPatch) -> None:
    assert faults(plan, seed=1) == []


@pytest.mark.parametrize("mutant", NOTICED)
def test_a_storm_notices(mutant: str, chosen: pytest.MonkeyPatch, build: tuple[Path, dict[str, int]]) -> None:
    chosen.setenv(CHOICE, str(build[1][mutant]))
    assert any(faults(NOTICED[mutant], seed) for seed in range(1, 4))
