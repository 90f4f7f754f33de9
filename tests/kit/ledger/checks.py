"""Checks of the store that its mutants must fail: sweeps of faults, storms, damage."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.ledger.journal.rotation import JournalRotation
from holdfast.ledger.layout import PAGE, SNAPSHOTS, journal_path
from tests.kit.ledger.store_world import SMALL, TOPICS, Life, SimWorld, SystemWorld, Use, World, simulated
from tests.kit.ledger.torn import BITS, ROUND_HEADER, Rounds, flips
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.slices import pick

# -- faults: the nth call fails --------------------------------------------------------------------------

NTH_MAX = 2000


def following(nth: int, dense: int = 2) -> int:
    """Return the next failing call of a sweep; later calls are thinned out."""
    return nth + pick(test=1 + nth // dense, nightly=1)


async def everything(life: Life, turns: int = 3) -> None:
    """Do all that a store does, until it fails: work, snapshots, trims, journal files."""
    try:
        for turn in range(turns):
            for n in range(6):
                life.mixture(n, size=200)
                await life.until(life.mixture(n + 1, size=3000))
            life.publish(1, *(b"%d" % turn * 900 for _ in range(12)))
            life.seal(1)
            life.publish(1, b"next")
            await life.store.flush()
            await life.store.snapshot()
            life.trim(1)
            await life.store.flush()
    except (HoldfastError, OSError):
        pass


def attempt(world: World, turns: int = 3) -> str:
    """Run a life under a fault; return how it ended."""

    async def use(life: Life) -> str:
        await everything(life, turns)
        return f"failed: {type(life.failed).__name__}" if life.failed is not None else "worked"

    try:
        return str(world.live(use, close=True))
    except (HoldfastError, OSError) as error:
        return f"not opened: {type(error).__name__}"


def account(world: World) -> None:
    """Crash, and check that durable events are there and work continues."""

    async def use(life: Life) -> None:
        await life.check_entries()
        await life.until(life.mixture(0))
        assert life.failed is None

    world.crash(0.0)
    world.live(use, close=False)
    world.crash(0.0)
    world.live()


def sweep_sim(
    arm: Callable[[World, int], None], struck: Callable[[World], bool], fresh: bool = False, dense: int = 2
) -> dict[str, int]:
    """Fail one call after the other, until a pass in which none fails."""
    seen: dict[str, int] = {}
    nth = 1
    while nth < NTH_MAX:
        with simulated(1) as world:
            if not fresh:
                world.live(everything, close=False)
                world.crash(0.0)
            arm(world, nth)
            outcome = attempt(world)
            clean = not struck(world)
            world.platter._faults.clear()
            account(world)
        if clean:
            assert outcome == "worked"
            assert nth > 1, "the sweep has met nothing"
            return seen
        seen[outcome] = seen.get(outcome, 0) + 1
        nth = following(nth, dense)
    raise AssertionError("no clean pass")


def the_nth_call_fails(operation: str, error: int) -> None:
    """Fail each call of an operation of the simulated disk in turn."""

    def arm(world: World, nth: int) -> None:
        world.platter.fail(nth, error, operation)  # type: ignore[attr-defined]

    fresh = operation in ("preallocate", "make_directory")  # needed by a new directory only
    dense = 4 if operation == "sync" else 2  # the mutants of the store need more calls
    seen = sweep_sim(arm, lambda world: not world.platter._faults, fresh, dense)  # type: ignore[attr-defined]
    if operation in ("write", "sync", "open", "rename", "unlink", "sync_directory"):
        assert seen.get("worked", 0) > 0, "most of them are repaired"


def a_power_cut_after_a_failed_sync_of_the_journal(seed: int) -> None:
    """Cut the power after a sync of the journal has failed, and others have not."""
    with simulated(seed) as world:

        async def use(life: Life) -> None:
            await life.until(life.mixture(0))
            world.platter.fail(1, errno.EIO, "sync")
            for n in range(5):
                await life.until(life.mixture(n))
            assert life.failed is None

        world.live(use, close=None)
        world.crash(0.0)
        world.live()


# -- storms ----------------------------------------------------------------------------------------------

BUSY = replace(SMALL, snapshot_bytes=48 << 10, snapshot_s=0.5)
"""Frequent snapshots."""


def busy(chance: SeededRandomness, frames: int = 400) -> Use:
    """Return random work for a life."""

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
    """Run lives that end by a power cut or SIGKILL, which keeps unsynced writes."""
    for _ in range(lives):
        world.die(busy(chance), moment_s=chance.between(0.0, moment_s), kill=chance.happens(0.5))


def power_cuts(seed: int, sync: str, lives: int = 8) -> None:
    """End lives by power cuts and kills; check that durable events are there."""
    chance = SeededRandomness(seed, f"store {sync}")
    with simulated(seed, replace(BUSY, sync=sync)) as world:  # type: ignore[arg-type]
        storm(world, chance, lives)
        told = world.oracle.told

        async def use(life: Life) -> None:
            await life.check_entries()

        world.live(use)
        assert world.live().recovered.clean
    assert told > 0


def a_kill_and_then_a_power_cut(seed: int, lives: int = 8) -> None:
    """End lives by a kill and a power cut in turn.

    Journals are short: the next life soon continues in another file, whose syncs do not cover the first.
    """
    chance = SeededRandomness(seed, "short journals")
    with simulated(seed, replace(SMALL, journal_bytes=16 << 10)) as world:
        for n in range(lives):
            world.die(busy(chance), moment_s=chance.between(0.0, 0.15), kill=n % 2 == 0)
        world.live()


# -- damage ----------------------------------------------------------------------------------------------


def every_bit_of_an_earlier_round_header(rounds: Rounds) -> None:
    """Flip bits of a round that others follow."""
    offset, _ = rounds.places[2]
    assert rounds.try_all(flips(rounds.content, offset, ROUND_HEADER)) == {"told": ROUND_HEADER * BITS}


def what_stood_behind_a_cut_never_comes_back(path: Path) -> None:
    """Lose a round below others, with `sync = os`."""
    world = SystemWorld(path, native=True, options=replace(SMALL, sync="os"))

    async def three(life: Life) -> None:
        for n in range(3):
            await life.until(life.add("a", n))

    async def one(life: Life) -> None:
        assert life.recovered.last_d == 1
        assert life.recovered.cut_bytes > 0
        await life.until(life.add("b", 100))

    world.live(three, close=False)
    file = path / journal_path(1)
    content = file.read_bytes()
    assert content[3 * PAGE : 3 * PAGE + 2] == b"HF"
    file.write_bytes(content[: 2 * PAGE] + bytes(PAGE) + content[3 * PAGE :])
    world.oracle.told = 1
    world.live(one, close=False)
    world.live(close=False)
    assert world.live(close=False).recovered.last_d == 2


# -- mending ---------------------------------------------------------------------------------------------


async def work(life: Life, frames: int = 20) -> None:
    for n in range(frames):
        life.mixture(n)
    await life.store.flush()


def trimmed(world: SystemWorld) -> Path:
    """Make two snapshots with a trim in between; return the newest."""

    async def use(life: Life) -> None:
        for n in range(3):
            life.publish(1, b"%d" % n * 100)
            life.seal(1)
        await life.store.snapshot()
        life.publish(1, b"more" * 50)
        life.trim(1)
        await life.store.snapshot()
        await life.until(life.add())

    world.live(use, close=False)
    snapshots = sorted((world.path / SNAPSHOTS).iterdir())
    assert len(snapshots) == 2
    return snapshots[-1]


def a_damaged_snapshot_after_a_trim_costs_nothing(world: SystemWorld) -> None:
    """Damage the newest snapshot, after a trim."""
    newest = trimmed(world)
    newest.write_bytes(newest.read_bytes()[:-1])
    found = world.live(close=False).recovered
    assert len(found.notes) == 1
    assert newest.name in found.notes[0]
    world.live()
    assert world.live().recovered.notes == ()


def a_sync_that_failed_before_a_restart(seed: int) -> None:
    """Read a round whose sync failed from the kernel's cache; then cut the power.

    On a disk that loses unsynced writes, both syncs of a round fail, and the store stops. The next store
    reads the round all the same, continues, and confirms later events.
    """
    with simulated(seed) as world:

        async def fail(life: Life) -> None:
            await life.until(life.mixture(0))
            world.platter.fail(1, errno.EIO, "sync")  # of the round
            world.platter.fail(2, errno.EIO, "sync")  # of the next file
            world.platter.fail(3, errno.EIO, "sync")
            world.platter.fail(4, errno.EIO, "sync")
            await life.until(life.mixture(1))
            assert life.failed is not None

        async def go_on(life: Life) -> None:
            for n in range(3):
                await life.until(life.mixture(n))

        world.live(fail, close=None)
        world.platter._faults.clear()
        world.platter.kill()
        world.live(go_on, close=None)
        world.crash(0.0)
        world.live()


# -- closed early ----------------------------------------------------------------------------------------


def closed_at_every_step_of_its_start(world: World, patch: pytest.MonkeyPatch) -> None:
    """Close each life one loop turn later after its start in a new file."""
    patch.setattr(JournalRotation, "_full", lambda *_: 0)
    world.live(work, close=False)
    last_d = world.oracle.told
    for turns in range(12):

        async def use(life: Life, turns: int = turns) -> None:
            assert life.recovered.last_d == last_d
            for _ in range(turns):
                await asyncio.sleep(0)

        world.live(use)
        world.crash(0.0)
