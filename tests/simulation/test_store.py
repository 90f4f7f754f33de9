"""Power cuts at any moment of a simulated life, of work, snapshots, recovery; then all is accounted for.

`HOLDFAST_SEED=n` repeats one seed.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from holdfast.group import SeededRandomness
from tests.kit.ledger.store_world import SMALL, TOPICS, Life, SimWorld, Use, simulated

SEEDS = [int(os.environ["HOLDFAST_SEED"])] if "HOLDFAST_SEED" in os.environ else list(range(24))
BUSY = replace(SMALL, snapshot_bytes=48 << 10, snapshot_s=0.5)
"""Snapshots all the time."""


def busy(chance: SeededRandomness, frames: int = 400) -> Use:
    """A life's work, drawn: until it is ended, or all is done."""

    async def use(life: Life) -> None:
        for n in range(frames):
            what = chance.integer(24)
            topic = TOPICS[chance.integer(3)]
            if what == 0:
                life.seal(topic)
            elif what == 1:
                life.trim(topic)
            elif what == 2:
                await life.store.snapshot()
            elif what < 6:
                life.publish(
                    topic, *(chance.token(chance.integer(3000)) for _ in range(1 + chance.integer(4)))
                )
            elif what < 10:
                await life.until(life.mixture(n, chance.integer(500)))
            else:
                life.mixture(n, chance.integer(200))
            if chance.integer(4) == 0:
                await life.store.flush()
        await life.store.flush()

    return use


def storm(world: SimWorld, chance: SeededRandomness, lives: int, moment_s: float = 0.4) -> None:
    """Lives that end by a power cut, or by SIGKILL: then what was written and not synced is still there."""
    for _ in range(lives):
        world.die(busy(chance), moment_s=chance.between(0.0, moment_s), kill=chance.happens(0.5))


@pytest.mark.parametrize(
    ("seed", "sync"), [*((seed, "group") for seed in SEEDS), *((seed, "always") for seed in SEEDS[:6])]
)
def test_power_cuts(seed: int, sync: str) -> None:
    """I33, I36, I37, I39: whatever was told durable is there, with its ledgers, after each of many cuts."""
    chance = SeededRandomness(seed, f"store {sync}")
    with simulated(seed, replace(BUSY, sync=sync)) as world:  # type: ignore[arg-type]
        storm(world, chance, lives=8)
        told = world.oracle.told

        async def use(life: Life) -> None:
            await life.check_entries()

        world.live(use)
        assert world.live().recovered.clean
    assert told > 0


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_a_kill_and_then_a_power_cut(seed: int) -> None:
    """I31, I33: what the killed one had written and not synced was shown since. Short journals, so that the
    next life soon goes on in another file, whose syncs do not cover it."""
    chance = SeededRandomness(seed, "short journals")
    with simulated(seed, replace(SMALL, journal_bytes=16 << 10)) as world:
        for n in range(8):
            world.die(busy(chance), moment_s=chance.between(0.0, 0.15), kill=n % 2 == 0)
        world.live()


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_power_cuts_with_sync_os(seed: int) -> None:
    """What was confirmed may be lost, up to a second of it; what is left is whole, and is no damage."""
    chance = SeededRandomness(seed, "store os")
    with simulated(seed, replace(BUSY, sync="os")) as world:
        for _ in range(6):
            world.oracle.told = 0
            storm(world, chance, lives=1, moment_s=3.0)
        world.oracle.told = 0
        world.live()


@pytest.mark.parametrize("seed", SEEDS[:10])
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
    """Torn tails are cut, snapshots are fallen back on never, journals are redone, ledgers go."""
    cut = redone = 0
    for seed in range(12):
        chance = SeededRandomness(seed, "look")
        with simulated(seed, BUSY) as world:
            for _ in range(6):
                world.die(busy(chance), moment_s=chance.between(0.05, 0.4))
                found = world.live(close=False).recovered
                cut += found.cut_bytes > 0
                redone += found.events > 0
                assert found.notes == ()
    assert cut > 5
    assert redone > 20


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
