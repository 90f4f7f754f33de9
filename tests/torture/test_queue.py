"""Kill at any moment: no message is lost, or delivered twice without a mark (storm.py).

`make torture` does the same for as long as you like; HOLDFAST_SEED repeats a storm's choices.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast import Queue
from tests.kit.nightly import QUEUE_KILLS
from tests.kit.queue import storm
from tests.kit.slices import Seed, pick, seeds

KILLS = pick(test=100, nightly=QUEUE_KILLS)
"""Fifty notice eight of twelve broken builds (mutants/test_storms.py); the explorer sees the others."""
STORMS = [
    pytest.param(plan, seed, id=f"{plan.name.replace(' ', '-')}-{seed}")
    for plan in storm.PLANS
    for seed in seeds(f"queue {plan.name}", test=1, nightly=3)
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("plan", "seed"), STORMS)
def test_storm(plan: storm.Plan, seed: Seed, counts: Callable[[str], None]) -> None:
    account = storm.run(replace(plan, kills=KILLS, seed=int(seed)))
    counts(account.words())
    assert account.faults == []
    assert account.kills >= KILLS
    assert account.lost == 0
    assert account.delivered > 0
    assert account.recovered > 0
    assert account.laps > 2
    if plan.stall_limit:
        assert account.fenced > 0
    if plan.max_deliveries:
        assert account.buried > 0


def test_a_storm_sees_what_is_wrong(runtime_directory: os.PathLike[str]) -> None:
    """The account reports a lost message, an unmarked duplicate and a foreign message."""
    plan = storm.Plan()
    raging = storm.Storm(plan, os.fspath(runtime_directory))
    Queue.create("q", capacity=plan.capacity).detach()

    def write(name: str, data: bytes) -> None:
        (runtime_directory / name).write_bytes(data)  # type: ignore[operator]

    write("put", b"".join(storm.PUT.pack(1, n) for n in range(3)))
    write(
        "got",
        b"".join(storm.GOT.pack(*each) for each in [(1, 1, 9, 0), (1, 2, 8, 0), (1, 1, 8, 0), (1, 7, 8, 0)]),
    )
    storm.judge(raging)
    assert raging.account.lost == 1
    words = "\n".join(raging.account.faults)
    assert "lost: [(1, 0)]" in words
    assert "(1, 1) was delivered again" in words
    assert "(1, 1) came to 8 after 2" in words
    assert "(1, 7) was delivered, and cannot have been put" in words
