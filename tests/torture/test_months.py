"""A slice of `make torture ARGS=--months`: everything comes and goes, and no figure grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.kit.growth import queue, server
from tests.kit.slices import pick

SERVER_ROUNDS = pick(test=8, nightly=150)
LONGER = pick(test=(1, 5, 15), nightly=(1, 5))
"""A run that shows growth is repeated with more rounds, which must show it, too."""
QUEUE_ROUNDS = pick(test=10, nightly=400)


def test_a_server_does_not_grow(tmp_path: Path, counts: Callable[[str], None]) -> None:
    """A pool rises until it is full, after at most fifty rounds; a leak always."""
    for longer in LONGER:
        directory = tmp_path / f"{longer}-fold"
        directory.mkdir()
        run = server.months(
            directory, range(longer * SERVER_ROUNDS), warm_up=max(2, longer * SERVER_ROUNDS // 5)
        )
        if not run.growing():
            break
    counts(f"{run.rounds} rounds of a server, {len(run.values)} figures level")
    run.require_level()


def test_queues_do_not_grow(runtime_directory: Path, counts: Callable[[str], None]) -> None:
    run = queue.months(runtime_directory, range(QUEUE_ROUNDS), warm_up=4)
    counts(f"{run.rounds} rounds of queues, {len(run.values)} figures level")
    run.require_level()
