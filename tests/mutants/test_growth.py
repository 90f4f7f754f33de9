"""Planted leaks: the judgement of long runs names the figure that each of them moves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.broker.housekeeping import Housekeeping
from tests.kit.growth import queue, server, simulated, watched
from tests.kit.growth.figures import COUNT, Kind, Run, judged, slope

ROUNDS, WARM_UP = 7, 1


def growing(run: Run) -> set[str]:
    return {each.name for each in run.growing()}


def test_leaks_of_a_server_are_noticed(tmp_path: Path) -> None:
    """All leaks at once, in one server; each alone in `make nightly`."""
    run = server.months(tmp_path, range(ROUNDS), WARM_UP, tuple(watched.LEAKS))
    missing = {figure for figure, _ in watched.LEAKS.values()} - growing(run)
    assert not missing, f"not noticed: {missing}\n{run.table()}"
    with pytest.raises(AssertionError, match=r"grows: .*descriptors"):
        run.require_level()


@pytest.mark.nightly  # together they are noticed by test_leaks_of_a_server_are_noticed
@pytest.mark.parametrize("leak", watched.LEAKS)
def test_a_leak_of_a_server_is_noticed(leak: str, tmp_path: Path) -> None:
    run = server.months(tmp_path, range(16), 4, (leak,))
    assert watched.LEAKS[leak][0] in growing(run), run.table()


@pytest.mark.parametrize("leak", queue.LEAKS)
def test_a_leak_of_queues_is_noticed(leak: str, runtime_directory: Path) -> None:
    run = queue.months(runtime_directory, range(ROUNDS), WARM_UP, leak)
    assert queue.LEAKS[leak] in growing(run), run.table()


def test_what_housekeeping_leaves_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: names of producers, sinks and stages that are never removed."""
    monkeypatch.setattr(Housekeeping, "_forget_producers", lambda *_: None)
    monkeypatch.setattr(Housekeeping, "_old", lambda _: ())
    run = simulated.months(tmp_path, range(ROUNDS), warm_up=3)
    assert growing(run) >= {"producer names", "sinks", "states"}, run.table()


# -- the judgement ---------------------------------------------------------------------------------------


def test_noise_is_level_and_a_leak_within_it_is_not() -> None:
    chance = random.Random(1)
    noise = [1000 + chance.randint(-30, 30) for _ in range(200)]
    assert not judged("objects", COUNT, noise).grows
    assert judged("objects", COUNT, [value + at for at, value in enumerate(noise)]).grows


def test_peaks_and_caches_that_fill_are_level() -> None:
    assert not judged("files", COUNT, [5, 5, 90, 5, 5, 5, 80, 5, 5, 5]).grows
    filling = [min(at, 20) * 10.0 for at in range(100)]
    assert not judged("entries", Kind("", 2.0), filling).grows


def test_one_in_each_round_is_a_leak() -> None:
    found = judged("files", COUNT, [7 + at for at in range(6)])
    assert found.grows
    assert "GROWS" in found.row()
    assert slope([7, 8, 9]) == 1.0


def test_rounds_of_the_warm_up_do_not_count() -> None:
    run = Run("warm", warm_up=3)
    for value in (1, 20, 300, 7, 7, 7):
        run.note({"files": (COUNT, value)})
    assert run.values["files"] == [7, 7, 7]
    run.require_level()
