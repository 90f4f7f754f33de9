"""Scenes of flow control: publishers, and a member that is paused or slow."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Closed, NoQuorum
from holdfast.group.cpg.progress import HELD_WINDOWS
from holdfast.group.interface import WINDOW_BYTES
from tests.kit.broker.trio import Trio, scene

SIZE = 256 << 10
PUBLISHERS = 4


async def flood(trio: Trio, sent: list[int]) -> None:
    """Publish to member 1 without an end, and count what was confirmed."""
    async with trio.brokers[1].producer("orders") as producer:
        while True:
            await producer.send(bytes(SIZE))
            sent.append(SIZE)


def begin(trio: Trio) -> tuple[list[int], list[asyncio.Future[None]]]:
    sent: list[int] = []
    return sent, [asyncio.ensure_future(flood(trio, sent)) for _ in range(PUBLISHERS)]


def a_paused_member_is_not_flooded() -> None:
    """I28: a majority confirms without it, and publishers wait for it all the same."""

    async def work(trio: Trio) -> None:
        sent, tasks = begin(trio)
        trio.sim.pause(3, 4.0)
        await asyncio.sleep(3.0)
        held_back = sum(sent)
        assert held_back + (PUBLISHERS + 1) * SIZE > WINDOW_BYTES, "nothing was published"
        assert trio.sim.running[3].waiting_bytes <= WINDOW_BYTES + (PUBLISHERS + 1) * SIZE
        await asyncio.sleep(1.5)
        assert sum(sent) > held_back, "no publisher went on when the member did"
        for task in tasks:
            task.cancel()

    scene(work)


def publishers_that_wait_for_a_member_end_with_their_broker() -> None:
    async def work(trio: Trio) -> None:
        _, tasks = begin(trio)
        trio.sim.pause(3, 100.0)
        await asyncio.sleep(2.0)
        trio.sim.split([1], [2, 3])
        for task in tasks:
            with pytest.raises((Closed, NoQuorum)):
                await asyncio.wait_for(task, 10.0)

    scene(work)


def a_slow_disk_holds_publishers_back() -> None:
    """A majority confirms without it, and its memory is limited all the same."""

    async def work(trio: Trio) -> None:
        trio.sim.platter(3).slow(100_000)
        sent, tasks = begin(trio)
        slow, most = trio.brokers[3], HELD_WINDOWS * WINDOW_BYTES + PUBLISHERS * SIZE
        for _ in range(60):  # a broker that does not hold them back is found soon, not after gigabytes
            await asyncio.sleep(0.1)
            assert sum(sent) <= most
            assert slow.machine.log.pending_bytes <= 2.5 * most, "each entry is written twice"
        assert sum(sent) > HELD_WINDOWS * WINDOW_BYTES / 2
        for task in tasks:
            task.cancel()

    scene(work)
