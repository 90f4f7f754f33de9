"""Power cuts at any moment of simulated work, snapshots and recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.ledger.checks import BUSY, a_kill_and_then_a_power_cut, busy, power_cuts, storm
from tests.kit.ledger.store_world import Life, simulated
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.slices import pick, seeds

SEEDS = seeds("store", test=8, nightly=240)
"""The mutants of the store need seven seeds (tests/mutants/test_store.py)."""
FEWER = SEEDS[: pick(test=3, nightly=100)]


@pytest.mark.parametrize(
    ("seed", "sync"), [*((seed, "group") for seed in SEEDS), *((seed, "always") for seed in FEWER)]
)
def test_power_cuts(seed: int, sync: str) -> None:
    """I33, I36, I37, I39: durable events and their ledgers are there after each cut."""
    power_cuts(seed, sync)


@pytest.mark.parametrize("seed", seeds("store-kill", test=8, nightly=240))
def test_a_kill_and_then_a_power_cut(seed: int) -> None:
    """I31, I33: bytes that a killed process wrote and did not sync were served since."""
    a_kill_and_then_a_power_cut(seed)


@pytest.mark.parametrize("seed", FEWER)
def test_power_cuts_with_sync_os(seed: int) -> None:
    """Up to a second of confirmed events may be lost; the rest is whole."""
    chance = SeededRandomness(seed, "store os")
    with simulated(seed, replace(BUSY, sync="os")) as world:
        for _ in range(6):
            world.oracle.told = 0
            storm(world, chance, lives=1, moment_s=3.0)
        world.oracle.told = 0
        world.live()


@pytest.mark.parametrize("seed", FEWER)
def test_power_cuts_of_recovery(seed: int) -> None:
    """I36: a long journal, and hardly time to read it before the next cut."""
    chance = SeededRandomness(seed, "recovery")
    with simulated(seed) as world:
        world.die(busy(chance, 200), moment_s=1.0)
        for _ in range(15):
            world.die(busy(chance, 3), moment_s=chance.between(0.0, 0.08), kill=chance.happens(0.5))

        async def use(life: Life) -> None:
            await life.check_entries()

        world.live(use)


def test_the_storms_meet_what_they_are_for() -> None:
    """Torn tails are cut, journals are redone, ledgers are trimmed; no snapshot is damaged."""
    cut = redone = 0
    tried = seeds("store look", test=4, nightly=12, single=False)
    for seed in tried:
        chance = SeededRandomness(seed, "look")
        with simulated(seed, BUSY) as world:
            for _ in range(6):
                world.die(busy(chance), moment_s=chance.between(0.05, 0.4))
                found = world.live(close=False).recovered
                cut += found.cut_bytes > 0
                redone += found.events > 0
                assert found.notes == ()
    assert cut > len(tried) // 2
    assert redone > 2 * len(tried)


def test_a_run_depends_on_its_seed_alone() -> None:
    """I29."""

    def run(seed: int) -> list[object]:
        chance = SeededRandomness(seed, "twice")
        with simulated(seed, BUSY) as world:
            storm(world, chance, lives=4)
            found = world.live(close=False).recovered
            return [found, world.sim.loop.now_ns, world.oracle.told]

    assert run(5) == run(5)
    assert run(5) != run(6)
