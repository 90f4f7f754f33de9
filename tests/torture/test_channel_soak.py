"""Kill processes of a channel at random: each datum and buffer is accounted for.

`python -m tests.kit.channel.soak` does the same for as long as you like; HOLDFAST_SEED repeats its choices.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.channel import soak
from tests.kit.slices import Seed, pick, seeds

KILLS = pick(test=50, nightly=4000)
SOAKS = [
    pytest.param(plan, seed, id=f"{plan.name.replace(' ', '-')}-{seed}")
    for plan in soak.PLANS
    for seed in seeds(f"channel {plan.name}", test=1, nightly=2)
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("plan", "seed"), SOAKS)
def test_soak(plan: soak.Plan, seed: Seed, counts: Callable[[str], None]) -> None:
    account = soak.run(replace(plan, kills=KILLS, seed=int(seed)))
    counts(account.words())
    assert account.faults == []
    assert account.kills >= KILLS
    assert account.popped > 0
    found = account.popped + account.displaced + account.left + account.with_the_dead
    assert found == account.positions, "each datum is in exactly one place"
    assert (account.displaced > 0) == plan.overflow


def write(directory: Path, kind: str, *records: tuple[int, int, int, int, int]) -> None:
    (directory / kind).write_bytes(b"".join(soak.RECORD.pack(*each) for each in records))


def faults(directory: Path, popped: list[tuple[int, int, int, int, int]], pushed: int) -> str:
    """Return the faults of an account: one producer pushed, and a consumer recorded these."""
    raging = soak.Soak(soak.Plan("waiting", overflow=False), os.fspath(directory))
    with raging.channel.producer() as producer, raging.channel.consumer() as consumer:
        positions = [producer.push(soak.datum(n)).position for n in range(pushed)]
        for _ in positions:
            consumer.pop(0).release()
    write(directory, "pushed", *((0, position, n, 0, 1) for n, position in enumerate(positions)))
    write(directory, "displaced")
    write(directory, "popped", *popped)
    raging.judge()
    return "\n".join(raging.account.faults)


def test_a_sound_account(runtime_directory: Path) -> None:
    first = soak.SLOTS + 1
    assert faults(runtime_directory, [(0, first + n, n, 0, 2) for n in range(3)], 3) == ""


def test_a_soak_sees_what_is_wrong(runtime_directory: Path) -> None:
    """The account reports a datum that is lost, came twice, or was exchanged."""
    first = soak.SLOTS + 1
    popped = [(0, first, 0, 0, 2), (0, first, 0, 0, 2), (0, first + 2, 7, 0, 2), (0, first + 9, 8, 5, 2)]
    found = faults(runtime_directory, popped, 4)
    assert f"lane 0: {first} (0) came after ({first}, 0, 2)" in found
    assert f"lane 0, position {first + 2}: 2 was pushed, 7 came" in found
    assert f"lane 0: 1 before {first + 2} are gone, lost is 0" in found
    assert f"lane 0: position {first} is in two places" in found
    assert "positions beyond its END" in found
    assert "2 are with the dead, more than 0" in found


def test_a_torn_datum_is_seen() -> None:
    data = bytearray(soak.datum(5))
    assert soak.number_of(bytes(data)) == 5
    data[-1] ^= 1
    with pytest.raises(AssertionError, match="torn"):
        soak.number_of(bytes(data))
