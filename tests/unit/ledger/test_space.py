"""A full disk refuses new entries, and accepts changes that free space (I38)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.errors import NoSpace
from holdfast.ledger.space import SLACK_BYTES, Demand, shortage
from tests.kit.ledger.store_world import SMALL, Life, SimWorld, simulated

KIB = 1 << 10
ROOMY = replace(SMALL, journal_bytes=128 * KIB, reserve_bytes=128 * KIB)


def fill(life: Life, size: int = 4000, limit: int = 10_000) -> int:
    """Publish until it is refused; return how many were published."""
    for n in range(limit):
        try:
            life.store.admit(size)
        except NoSpace:
            return n
        life.publish(1, bytes([n % 251]) * size)
    raise AssertionError("it was never full")


async def fill_up(life: Life) -> int:
    """Like `fill`, round by round, until nothing more is admitted."""
    total = 0
    for _ in range(1000):
        went = fill(life, limit=10_000)
        total += went
        await life.store.flush()
        if went == 0:
            return total
    raise AssertionError("it never stays full")


def full(world: SimWorld, capacity: int) -> None:
    world.platter.capacity_bytes = capacity


def test_publishing_is_refused_before_anything_fails() -> None:
    with simulated(1, ROOMY) as world:
        full(world, 1 << 20)

        async def use(life: Life) -> None:
            assert await fill_up(life) > 20
            stats = life.store.stats()
            assert stats.refused > 0
            assert stats.failed == ""
            assert stats.reserved, "the reserve was not needed"

        world.live(use)
        world.crash(0.0)
        world.live()


def test_acks_go_on_for_ever_on_a_full_disk() -> None:
    """The journal's files cannot hold so many acks: snapshots free space in them."""
    with simulated(1, ROOMY) as world:
        full(world, 1 << 20)

        async def use(life: Life) -> None:
            await fill_up(life)
            for turn in range(300):
                for n in range(10):
                    life.add(f"a{n}", turn)
                await life.store.flush()
            assert life.store.stats().journal_bytes > 4 * ROOMY.journal_bytes
            assert life.failed is None
            with pytest.raises(NoSpace):
                life.store.admit(100_000)

        world.live(use, close=False)
        world.crash(0.0)
        world.live()


def test_deleting_makes_room() -> None:
    with simulated(1, ROOMY) as world:
        full(world, 1 << 20)

        async def use(life: Life) -> None:
            await fill_up(life)
            life.seal(1)
            life.store.applied()
            await life.store.flush()
            life.publish(1, b"small")  # so that the large ledger is not the last
            life.trim(1)
            await life.store.snapshot()
            assert life.store.stats().free_bytes >= 0
            for _ in range(5):
                life.add()
                await life.store.flush()
            await life.store._running._look()  # type: ignore[union-attr]
            assert await fill_up(life) > 10
            assert life.failed is None

        world.live(use)
        world.live()


def test_somebody_else_fills_the_disk() -> None:
    """Admitted entries use the reserve; nothing more is admitted until there is room."""
    with simulated(1, ROOMY) as world:

        async def use(life: Life) -> None:
            await life.until(life.mixture(0))
            for _ in range(2):  # an idle store makes a spare
                await life.store._running._look()  # type: ignore[union-attr]
            full(world, world.platter.used_bytes())
            for n in range(20):
                life.mixture(n, size=3000)  # admitted before, so to speak
            await life.store.flush()
            stats = life.store.stats()
            assert not stats.reserved
            with pytest.raises(NoSpace, match="reserve"):
                life.store.admit(10)
            for _ in range(50):
                await life.until(life.add())
            full(world, world.platter.used_bytes() + (2 << 20))
            await life.store._running._look()  # type: ignore[union-attr]
            assert life.store.stats().reserved
            life.store.admit(10)

        world.live(use)
        world.crash(0.0)
        world.live()


def test_no_room_at_all_is_waited_out() -> None:
    """Without room and reserve, nothing is confirmed and nothing lost, until there is room."""
    with simulated(1, ROOMY) as world:

        async def use(life: Life) -> None:
            await life.until(life.mixture(0))
            full(world, world.platter.used_bytes() - ROOMY.reserve_bytes)
            ds = [life.mixture(n, size=3000) for n in range(40)]
            clock = life.store._opened.clock
            await clock.sleep(5)
            assert life.failed is None
            assert life.durable_d < ds[-1]
            world.platter.capacity_bytes = None
            await life.until(ds[-1])
            assert life.failed is None

        world.live(use)
        world.live()


def test_recovery_on_a_full_disk_uses_the_reserve() -> None:
    with simulated(1, ROOMY) as world:

        async def use(life: Life) -> None:
            for n in range(20):
                life.mixture(n, size=3000)
            await life.store.flush()

        world.live(use, close=False)
        world.crash(0.0)  # the ledgers are gone, the journal is not
        full(world, world.platter.used_bytes())
        world.live(close=False)
        world.crash(0.0)
        full(world, world.platter.used_bytes() - ROOMY.reserve_bytes)
        with pytest.raises(NoSpace, match="free space"):
            world.live(close=False)
        world.crash(0.0)
        world.platter.capacity_bytes = None
        world.live()


def test_no_room_for_a_new_directory() -> None:
    with simulated(1, ROOMY) as world:
        full(world, 64 * KIB)
        with pytest.raises(NoSpace, match="free space"):
            world.live()
        full(world, 1 << 20)
        world.live()


def test_no_reserve_is_possible() -> None:
    with simulated(1, replace(SMALL, reserve_bytes=0)) as world:
        world.live(lambda life: life.until(life.mixture(1)))
        world.live()


@pytest.mark.parametrize(
    ("free", "demand", "missing"),
    [
        (1 << 20, Demand(1000, 0, 5000, 1 << 16), 0),
        (SLACK_BYTES, Demand(1000, 0, 5000, 1 << 16), 1250),
        (SLACK_BYTES + 1250, Demand(1000, 0, 999, 1 << 16), 1 + (1 << 16)),
        (1 << 20, Demand(1000, 1 << 20, 1 << 30, 1 << 16), 1250 + SLACK_BYTES),
        (1 << 20, Demand(16, 0, -(1 << 21), 1 << 21), (1 << 20) + (1 << 21) + 16 + 20 + SLACK_BYTES),
    ],
)
def test_the_arithmetic(free: int, demand: Demand, missing: int) -> None:
    assert shortage(free, demand) == missing
