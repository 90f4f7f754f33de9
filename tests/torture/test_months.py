"""A slice of `make torture ARGS=--months`: everything comes and goes, and no figure grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.kit.growth import queue, server
from tests.kit.slices import pick

SERVER_ROUNDS = pick(test=8, nightly=150)
QUEUE_ROUNDS = pick(test=10, nightly=400)


def test_a_server_does_not_grow(tmp_path: Path, counts: Callable[[str], None]) -> None:
    """A pool that fills rises over a few rounds; a leak also over many."""
    for name in ("short", "long"):
        (tmp_path / name).mkdir()
    run = server.months(tmp_path / "short", range(SERVER_ROUNDS), warm_up=2)
    if run.growing():
        run = server.months(tmp_path / "long", range(5 * SERVER_ROUNDS), warm_up=SERVER_ROUNDS)
    counts(f"{run.rounds} rounds of a server, {len(run.values)} figures level")
    run.require_level()


def test_queues_do_not_grow(runtime_directory: Path, counts: Callable[[str], None]) -> None:
    run = queue.months(runtime_directory, range(QUEUE_ROUNDS), warm_up=4)
    counts(f"{run.rounds} rounds of queues, {len(run.values)} figures level")
    run.require_level()
